// Sections open where a link leads to them, and for printing; a button opens or closes all of them.
const folds = [...document.querySelectorAll("main > section > details")];
const reveal = () => {
  const place = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const fold = place && (place.querySelector(":scope > details") ?? place.closest("main > section > details"));
  if (fold && !fold.open) {
    fold.open = true;
    place.scrollIntoView();
  }
};
for (const link of document.querySelectorAll('a[href^="#"]')) link.addEventListener("click", () => setTimeout(reveal));
addEventListener("hashchange", reveal);
addEventListener("beforeprint", () => folds.forEach((fold) => (fold.open = true)));
reveal();
if (folds.some((fold) => !fold.open)) {
  const button = document.createElement("button");
  button.className = "all";
  const told = () => (button.textContent = folds.every((fold) => fold.open) ? "Close all sections" : "Open all sections");
  button.addEventListener("click", () => {
    const open = !folds.every((fold) => fold.open);
    folds.forEach((fold) => (fold.open = open));
  });
  folds.forEach((fold) => fold.addEventListener("toggle", told));
  told();
  document.querySelector("nav")?.append(button);
}

// Tables can be sorted by their columns; everything can be read without this.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    button.title = "Sort by this column";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[place].dataset.sort ?? row.cells[place].textContent;
      const order = (one, other) => {
        const [a, b] = [Number(key(one)), Number(key(other))];
        const by = Number.isNaN(a) || Number.isNaN(b) ? key(one).localeCompare(key(other)) : a - b;
        return up ? by : -by;
      };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order));
    });
  });
}
