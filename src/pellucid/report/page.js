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
