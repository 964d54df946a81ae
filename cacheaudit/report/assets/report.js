(() => {
  "use strict";
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  for (const part of all("[data-needs-script]")) part.hidden = false;

  // Findings: a word filter and chips for the verdict.
  const filter = document.getElementById("filter");
  const chips = all("[data-chip]");
  const findings = all(".finding");
  const show = () => {
    const words = (filter ? filter.value : "").toLowerCase().split(/\s+/).filter(Boolean);
    const pressed = chips.find((chip) => chip.getAttribute("aria-pressed") === "true");
    const kind = pressed ? pressed.dataset.chip : "";
    let shown = 0;
    for (const finding of findings) {
      const text = finding.textContent.toLowerCase();
      const fits = (!kind || finding.dataset.chips.split(" ").includes(kind)) &&
        words.every((word) => text.includes(word));
      finding.hidden = !fits;
      shown += fits;
    }
    const nothing = document.getElementById("nothing");
    if (nothing) nothing.hidden = shown > 0 || findings.length === 0;
  };
  if (filter) filter.addEventListener("input", show);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      for (const other of chips) other.setAttribute("aria-pressed", String(other === chip));
      show();
    });
  }

  // A link to a finding or a call must find it, whatever is filtered or folded.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) return;
    if (target.hidden && filter) {
      filter.value = "";
      if (chips.length) chips[0].click();
      show();
    }
    const folded = target.closest("details");
    if (folded) folded.open = true;
    target.scrollIntoView({ block: "center" });
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Tables: a click on a heading sorts by it, numbers as numbers.
  const value = (cell) => {
    const text = cell.textContent.trim();
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

  for (const button of all("[data-copy]")) {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
    });
  }
})();
