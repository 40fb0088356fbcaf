// Tables of scores: groups collapse, and the tasks are sorted by their value.

for (const table of document.querySelectorAll("table[data-scores]")) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const closed = () => new Set([...table.querySelectorAll("[data-fold][aria-expanded=false]")].map((button) => button.dataset.fold));

  // A task is its first row with the rows of its other metrics.
  const blocks = [];
  for (const row of original) {
    if (row.classList.contains("follows") && blocks.length) blocks.at(-1).push(row); else blocks.push([row]);
  }

  function showTree() {
    const hidden = closed();
    body.replaceChildren(...original);
    for (const row of original) row.hidden = row.dataset.within.split(" ").some((name) => hidden.has(name));
  }

  function showSorted(descending) {
    const tasks = blocks.filter(([row]) => !row.classList.contains("group"));
    const value = ([row]) => row.dataset.value === undefined ? NaN : Number(row.dataset.value);
    const order = (first, second) => {
      const [one, other] = [value(first), value(second)];
      if (Number.isNaN(one) || Number.isNaN(other)) return Number(Number.isNaN(one)) - Number(Number.isNaN(other));
      return descending ? other - one : one - other;
    };
    tasks.sort(order);
    for (const row of tasks.flat()) row.hidden = false;
    body.replaceChildren(...tasks.flat());
  }

  table.addEventListener("click", (event) => {
    const fold = event.target.closest("[data-fold]");
    if (fold) {
      fold.setAttribute("aria-expanded", String(fold.getAttribute("aria-expanded") === "false"));
      showTree();
    }
    const sorter = event.target.closest("[data-sort-scores]");
    if (sorter) {
      const head = sorter.closest("th");
      const next = { none: "descending", descending: "ascending", ascending: "none" }[head.getAttribute("aria-sort") ?? "none"];
      head.setAttribute("aria-sort", next);
      if (next === "none") showTree(); else showSorted(next === "descending");
    }
  });
}
