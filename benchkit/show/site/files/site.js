// Sorts, filters and switches what the pages already contain; draws their figures by Bokeh.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const state = () => new URLSearchParams(location.hash.slice(1));
  const remember = (name, value) => {
    const words = state();
    if (value) words.set(name, value); else words.delete(name);
    history.replaceState(null, "", `#${words}`);
  };
  const chosen = document.querySelector(".chosen"), metric = byId("metric"), range = byId("range");
  const alternatives = [...document.querySelectorAll("template")];
  const filters = ["find", "size", "show"].map(byId).filter(Boolean);

  async function draw(root) {
    const places = [...root.querySelectorAll(".figure")].filter((place) => place.querySelector("script"));
    await Promise.all(places.map((place, n) => {
      const data = place.querySelector("script");
      data.remove();
      place.id = `figure-${n}`;
      return Bokeh.embed.embed_item(JSON.parse(data.textContent), place.id);
    }));
    showRange();
  }

  // Show the last days of each figure of nights, or all of them.
  function showRange() {
    if (!range) return;
    for (const { x_range } of Bokeh.documents.flatMap((page) => page.roots())) {
      const [first, last] = [x_range.reset_start, x_range.reset_end];
      const begin = range.value ? last - range.value * 86_400_000 : first;
      x_range.setv({ start: Math.max(first, begin), end: last });
    }
  }

  // A cell sorts by its number, else by its text; missing numbers are last.
  function key(row, column) {
    const order = row.dataset.order?.split(",")[column];
    return order ? Number(order) : row.cells[column].innerText;
  }
  function compare(a, b) {
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return typeof a === "number" ? a - b : a.localeCompare(b);
  }
  function makeSortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const isDown = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => compare(key(a, column), key(b, column)) * (isDown ? -1 : 1));
        table.tBodies[0].append(...rows);
      });
    });
  }

  function filter() {
    if (!filters.length) return;
    const [words, size, show] = filters.map((each) => each.value);
    const rows = [...document.querySelectorAll("tr[data-words]")];
    for (const row of rows) {
      row.hidden = !words.toLowerCase().split(/\s+/).every((word) => row.dataset.words.includes(word))
        || Number(row.dataset.size) < Number(size) / 100
        || (show === "news" && "quiet" in row.dataset);
    }
    const n = rows.filter((row) => row.hidden).length;
    document.querySelector("[role=status]").textContent = n ? `${n} of ${rows.length} hidden` : "";
  }

  function choose() {
    chosen.replaceChildren(alternatives[metric.selectedIndex].content.cloneNode(true));
    chosen.querySelectorAll("table").forEach(makeSortable);
    filter();
    draw(chosen);
  }

  for (const each of filters) {
    each.value = state().get(each.id) ?? "";
    if (each.selectedIndex === -1) each.selectedIndex = 0;
    each.addEventListener("input", () => { remember(each.id, each.value); filter(); });
  }
  if (range) {
    range.value = state().get("range") ?? "";
    if (range.selectedIndex === -1) range.selectedIndex = 0;
    range.addEventListener("change", () => { remember("range", range.value); showRange(); });
  }
  document.querySelectorAll("main table").forEach((table) => {
    if (!chosen?.contains(table)) makeSortable(table);
  });
  if (!metric) draw(document);
  else {
    const wanted = [...metric.options].findIndex((each) => each.value === state().get("metric"));
    metric.selectedIndex = Math.max(wanted, 0);
    metric.addEventListener("change", () => { remember("metric", metric.value); choose(); });
    choose();
  }
})();
