"""Pages of the rules, Markdown: what ``explain`` prints and what ``docs/rules`` holds."""

from __future__ import annotations

from pathlib import Path

from cacheaudit.diagnose.rule import FAMILIES, Rule, all_rules


def page(rule: Rule) -> str:
    """Render the page of a rule."""
    lines = [f"# {rule.id} {rule.name}", "", f"**{rule.title}.**", "", rule.explanation, ""]
    lines += [f"Family: {FAMILIES[rule.family]}. Kind: {rule.kind}."]
    if rule.provider_reasons:
        words = ", ".join(f"`{word}`" for word in rule.provider_reasons)
        lines += ["", f"The provider's own words for it: {words}."]
    if rule.fix is not None:
        lines += ["", "## Fix", "", f"{rule.fix.title}."]
        if rule.fix.patch:
            lines += ["", "```", rule.fix.patch, "```"]
    lines += _limits(rule)
    return "\n".join(lines) + "\n"


def _limits(rule: Rule) -> list[str]:
    """Say where the saving of a fix is not told, or told under a condition."""
    if rule.no_edit is not None:
        return ["", f"No saving is told. {rule.no_edit}"]
    if rule.is_trade:
        line = "Its fix can be simulated, but an audit counts it for nothing: what the change was"
        return ["", f"{line} good for stands in no bill."]
    if rule.rests_on:
        names = ", ".join(f"`{name}={value}`" for name, value in rule.rests_on.items())
        return ["", f"It costs something only where a disputed rule holds: `--switch` {names}."]
    return []


def index() -> str:
    """Render the list of all rules."""
    lines = ["# Rules", "", "| id | name | what it says |", "|---|---|---|"]
    lines += [f"| {r.id} | [{r.name}]({r.name}.md) | {r.title} |" for r in all_rules()]
    return "\n".join(lines) + "\n"


def write_pages(folder: Path) -> None:
    """Write every page and the index into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for rule in all_rules():
        (folder / f"{rule.name}.md").write_text(page(rule), encoding="utf-8")
    (folder / "README.md").write_text(index(), encoding="utf-8")
