// SPDX-License-Identifier: Apache-2.0
// A table that is sorted by its headers and shows the first rows of many.

// columns: { key, title, unit, number, value(row) to sort by, cell(row) to show }. detail(row) opens below a row.
function sortable({ columns, rows, sorted, descending = true, first = 50, detail = null, name = "" }) {
  let order = { key: sorted, descending };
  let shown = rows;
  let limit = first;
  const body = el("tbody");
  const more = el("button", { type: "button", onclick: () => { limit = Infinity; draw(); } });
  const heads = columns.map((column) => {
    const unit = column.unit ? el("span", { class: "unit" }, " " + column.unit) : null;
    const button = el("button", { type: "button", onclick: () => sortBy(column) }, column.title, unit);
    return el("th", { class: column.number ? "number" : null, scope: "col" }, button);
  });
  const table = el("table", { "aria-label": name }, el("thead", null, el("tr", null, heads)), body);
  const root = el("div", { class: "scroll" }, table, el("p", { class: "more" }, more));

  function sortBy(column) {
    const again = order.key === column.key;
    order = { key: column.key, descending: again ? !order.descending : Boolean(column.number) };
    draw();
  }

  function compare(a, b) {
    const unknown = (value) => value === null || value === undefined;
    if (unknown(a) || unknown(b)) return Number(unknown(a)) - Number(unknown(b));
    const way = order.descending ? -1 : 1;
    return (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b) * way;
  }

  function draw() {
    const column = columns.find((candidate) => candidate.key === order.key);
    const list = column ? [...shown].sort((a, b) => compare(column.value(a), column.value(b))) : shown;
    columns.forEach((candidate, index) => {
      const way = order.descending ? "descending" : "ascending";
      heads[index].setAttribute("aria-sort", candidate === column ? way : "none");
    });
    body.replaceChildren(...list.slice(0, limit).map(rowElement));
    more.textContent = "Show all " + list.length;
    more.parentElement.hidden = list.length <= limit;
  }

  function rowElement(row) {
    const cells = columns.map((column) =>
      el("td", { class: [column.number ? "number" : "", column.style || ""].join(" ").trim() || null }, column.cell(row)));
    const element = el("tr", { class: row.style || null }, cells);
    if (detail) {
      element.classList.add("row");
      element.tabIndex = 0;
      element.addEventListener("click", () => toggle(element, row));
      element.addEventListener("keydown", (event) => { if (event.key === "Enter") toggle(element, row); });
    }
    return element;
  }

  function toggle(element, row) {
    const next = element.nextElementSibling;
    element.classList.toggle("open");
    if (next && next.classList.contains("detail")) next.remove();
    else element.after(el("tr", { class: "detail" }, el("td", { colspan: columns.length }, detail(row))));
  }

  draw();
  return { root, show(list) { shown = list; draw(); } };
}
