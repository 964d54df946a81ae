(() => {
  "use strict";
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  for (const part of all("[data-needs-script]")) part.hidden = false;

  // Opportunities: a word filter, a model, and chips for the group.
  const filter = document.getElementById("filter");
  const model = document.getElementById("model");
  const chips = all("[data-chip]");
  const findings = all(".finding");
  const show = () => {
    const words = (filter ? filter.value : "").toLowerCase().split(/\s+/).filter(Boolean);
    const pressed = chips.find((chip) => chip.getAttribute("aria-pressed") === "true");
    const group = pressed ? pressed.dataset.chip : "";
    const wanted = model ? model.value : "";
    let shown = 0;
    for (const finding of findings) {
      const text = finding.textContent.toLowerCase();
      const fits = (!group || finding.dataset.group === group) &&
        (!wanted || finding.dataset.models.split("\n").includes(wanted)) &&
        words.every((word) => text.includes(word));
      finding.hidden = !fits;
      shown += fits;
    }
    const nothing = document.getElementById("nothing");
    if (nothing) nothing.hidden = shown > 0 || findings.length === 0;
  };
  const press = (chip) => {
    for (const other of chips) other.setAttribute("aria-pressed", String(other === chip));
    show();
  };
  if (filter) filter.addEventListener("input", show);
  if (model) model.addEventListener("change", show);
  for (const chip of chips) chip.addEventListener("click", () => press(chip));

  // A link to an opportunity or a call must find it, whatever is filtered or folded.
  const unfold = (part) => {
    for (let fold = part.closest("details"); fold; fold = fold.parentElement.closest("details")) {
      fold.open = true;
    }
  };
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) return;
    if (target.hidden && filter) {
      filter.value = "";
      if (model) model.value = "";
      press(chips[0]);
    }
    unfold(target);
    target.scrollIntoView({ block: target.tagName === "DETAILS" ? "start" : "center" });
  };
  addEventListener("hashchange", reveal);
  reveal();

  // On paper nothing is folded.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    for (const fold of folded) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of folded) fold.open = false;
  });

  // Breaks of the prefix, one after another.
  const breaks = all(".break");
  const at = document.getElementById("at-break");
  let place = -1;
  for (const button of all("[data-step]")) {
    button.addEventListener("click", () => {
      place = (place + Number(button.dataset.step) + breaks.length) % breaks.length;
      if (at) at.textContent = `${place + 1} of ${breaks.length}`;
      unfold(breaks[place]);
      breaks[place].scrollIntoView({ block: "nearest" });
      breaks[place].focus({ preventScroll: true });
    });
  }

  // Tables: a click on a heading sorts by it, numbers as numbers.
  const value = (cell) => {
    const text = cell ? cell.textContent.trim() : "";
    const number = Number(text.replace(/[^0-9.eE-]/g, "") || NaN);
    return /^[≥<$€£\d\s.,%–-]+/.test(text) && !Number.isNaN(number) ? number : text.toLowerCase();
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  for (const table of all("table.sortable")) {
    all("thead th", table).forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "descending";
        for (const other of all("thead th", table)) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [value(row.cells[column]), row]);
        rows.sort((a, b) => (up ? 1 : -1) * compare(a[0], b[0]));
        body.append(...rows.map((pair) => pair[1]));
      });
    });
  }

  // Copying: into the clipboard, or selected where that is not allowed.
  const copy = async (button, text, fallback) => {
    const name = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      fallback();
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = name; }, 2000);
  };
  for (const button of all("[data-copy]")) {
    button.addEventListener("click", () => {
      const code = button.parentElement.querySelector("code");
      copy(button, code.textContent, () => getSelection().selectAllChildren(code));
    });
  }
  const copies = document.getElementById("copies");
  for (const button of all("[data-copies]")) {
    button.addEventListener("click", () => {
      const both = JSON.parse(copies.textContent);
      const text = button.dataset.copies === "md" ? both.md : JSON.stringify(both.json, null, 2);
      copy(button, text, () => {
        // Without a clipboard the text is shown, selected and ready to be copied by hand.
        const area = document.createElement("textarea");
        area.value = text;
        area.className = "by-hand";
        area.setAttribute("aria-label", "Text to copy");
        for (const old of all(".by-hand")) old.remove();
        button.closest("header").append(area);
        area.select();
      });
    });
  }
})();
