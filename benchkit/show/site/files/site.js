// Draws the overview and the pages of workloads from the files in the folder data. Texts are set as
// text, never as markup, because names, reasons and versions come from runs.
"use strict";
(() => {
  const root = document.body.dataset.root || "";
  const byId = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const make = (tag, attrs = {}, ...children) => fill(document.createElement(tag), attrs, children);
  const draw = (tag, attrs = {}, ...children) => fill(document.createElementNS(SVG, tag), attrs, children);
  function fill(node, attrs, children) {
    for (const [name, value] of Object.entries(attrs)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined) node.setAttribute(name, value);
    }
    for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
    return node;
  }
  const day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);
  const minute = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  function digits(value) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    return size >= 999.5 ? value.toFixed(0) : value.toPrecision(3);
  }
  // Returns the divisor and the name of the unit for a value of this size.
  function scaled(value, unit) {
    const size = Math.abs(value);
    if (unit === "B" || unit === "B/s") {
      const names = ["B", "KiB", "MiB", "GiB", "TiB"];
      const step = size < 1 ? 0 : Math.min(4, Math.floor(Math.log(size) / Math.log(1024)));
      return [1024 ** step, names[step] + unit.slice(1)];
    }
    if (unit === "s" && size > 0 && size < 0.9995) return size < 9.995e-4 ? [1e-6, "µs"] : [1e-3, "ms"];
    return [1, unit === "1" ? "" : unit];
  }
  function quantity(value, unit) {
    if (value === null || value === undefined) return "–";
    const [by, name] = scaled(value, unit);
    return `${digits(value / by)} ${name}`.trim();
  }
  function percent(ratio) {
    if (ratio === null || ratio === undefined) return "–";
    const change = 100 * (ratio - 1);
    if (Math.abs(change) < 0.05) return "±0 %";
    return `${change > 0 ? "+" : "−"}${Math.abs(change) >= 10 ? Math.abs(change).toFixed(0) : Math.abs(change).toFixed(1)} %`;
  }
  function signed(value) {
    if (value === null || value === undefined) return "–";
    const text = Math.abs(value).toFixed(1);
    return text === "0.0" ? text : `${value > 0 ? "+" : "−"}${text}`;
  }
  const remember = (name, value) => {
    const words = new URLSearchParams(location.hash.slice(1));
    if (value) words.set(name, value); else words.delete(name);
    history.replaceState(null, "", `#${words}`);
  };
  const recall = (name) => new URLSearchParams(location.hash.slice(1)).get(name);

  // Draws a table that sorts by a click on a heading and filters by words; `columns` are
  // {name, cell(row) -> node or text, sort(row), number}.
  function table(node, columns, rows, { most = Infinity, find, keep = () => true, hidden, by = null } = {}) {
    let down = false;
    const head = node.tHead.rows[0], body = node.tBodies[0];
    head.replaceChildren(...columns.map((column, place) =>
      make("th", { class: column.number ? "n" : null, scope: "col" }, make("button", { onclick: () => {
        down = by === place ? !down : Boolean(column.number);
        by = place;
        show();
      } }, column.name))));
    function show() {
      const words = (find?.value || "").toLowerCase().split(/\s+/).filter(Boolean);
      let kept = rows.filter((row) => keep(row) && words.every((word) => row.text.includes(word)));
      if (by !== null) {
        const value = columns[by].sort;
        kept = [...kept].sort((a, b) => {
          const [x, y] = [value(a), value(b)];
          if (x === y) return 0;
          if (x === null || x === undefined) return 1; // missing values last, in both directions
          if (y === null || y === undefined) return -1;
          return (x < y ? -1 : 1) * (down ? -1 : 1);
        });
      }
      [...head.cells].forEach((cell, place) => {
        cell.setAttribute("aria-sort", by !== place ? "none" : down ? "descending" : "ascending");
      });
      const shown = kept.slice(0, most);
      body.replaceChildren(...shown.map((row) => make("tr", {}, columns.map((column) =>
        make("td", { class: column.number ? "n" : null }, column.cell(row))))));
      const left = rows.length - shown.length;
      hidden.replaceChildren(left ? `${left} of ${rows.length} hidden` : `${rows.length} rows`);
      if (kept.length > most) {
        hidden.append(" ", make("button", { onclick: () => { most = Infinity; show(); } }, "show all"));
      }
    }
    find?.addEventListener("input", show);
    show();
    return show;
  }

  function spark(metric) {
    const [width, height, pad] = [130, 26, 3];
    const values = metric.spark, known = values.filter((value) => value !== null);
    const svg = draw("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    if (!known.length) return svg;
    const sorted = [...known].sort((a, b) => a - b);
    const middle = sorted[Math.floor(sorted.length / 2)];
    // At least ±5 %, so that noise does not look like a change.
    const low = Math.min(sorted[0], middle * 0.95), high = Math.max(sorted[sorted.length - 1], middle * 1.05);
    const x = (place) => pad + (width - 2 * pad) * place / Math.max(1, values.length - 1);
    const y = (value) => high === low ? height / 2 : height - pad - (height - 2 * pad) * (value - low) / (high - low);
    for (const [place, direction] of metric.steps) {
      const colour = direction === metric.worse ? "var(--worse)" : "var(--better)";
      svg.append(draw("line", { x1: x(place), x2: x(place), y1: 1, y2: height - 1, stroke: colour, "stroke-width": 1 }));
    }
    let path = "", open = false;
    values.forEach((value, place) => {
      if (value === null) { open = false; return; }
      path += `${open ? "L" : "M"}${x(place).toFixed(1)} ${y(value).toFixed(1)}`;
      open = true;
    });
    svg.append(draw("path", { d: path, fill: "none", stroke: "var(--c0)", "stroke-width": 1.3 }));
    return svg;
  }

  const BAD = ["failed", "wrong_answer", "timeout", "lost_workers"];
  function overview(data) {
    const choose = byId("metric"), filter = byId("show"), size = byId("size");
    for (const [name, metric] of Object.entries(data.metrics)) {
      choose.append(make("option", { value: name }, metric.name));
    }
    if (data.metrics[recall("metric")]) choose.value = recall("metric");
    filter.value = recall("show") === "news" ? "news" : "all";
    byId("find").value = recall("find") || "";
    if ([...size.options].some((option) => option.value === recall("size"))) size.value = recall("size");
    for (const row of data.rows) row.text = `${row.workload} ${row.label} ${row.outcome} ${row.owner}`.toLowerCase();
    const of = (row) => row.metrics[choose.value];
    const state = (row) => of(row)?.state ?? "absent";
    const isLarge = (row) => size.value === "0" || state(row) === "failed" || 100 * Math.abs((of(row)?.ratio ?? 1) - 1) >= Number(size.value);
    const tones = { failed: "worse", regressed: "worse", unsure: "warn", improved: "better" };
    const columns = [
      { name: "workload", cell: (row) => make("a", { href: `${root}w/${row.page}.html#metric=${choose.value}` }, row.workload), sort: (row) => row.workload },
      { name: "environment", cell: (row) => row.label, sort: (row) => row.label },
      { name: "state", cell: (row) => make("span", { class: tones[state(row)] ?? "soft" }, of(row)?.label ?? "not measured"), sort: (row) => data.states.indexOf(state(row)) },
      { name: "last night", number: true, cell: (row) => state(row) === "failed" ? "failed" : quantity(of(row)?.now, data.metrics[choose.value].unit), sort: (row) => of(row)?.now ?? null },
      { name: "against usual", number: true, cell: (row) => percent(of(row)?.ratio), sort: (row) => of(row)?.ratio ?? null },
      { name: "in noise units", number: true, cell: (row) => signed(of(row)?.units), sort: (row) => { const units = of(row)?.units; return units === null || units === undefined ? null : Math.abs(units); } },
      { name: "last change", cell: (row) => { const change = of(row)?.change; return change ? `${percent(change.ratio)} on ${change.night}${change.machine ? ", caused by the machine" : ""}` : ""; }, sort: (row) => of(row)?.change?.night ?? null },
      { name: "nights", cell: (row) => of(row) ? spark(of(row)) : "", sort: (row) => row.workload },
      ...(data.rows.some((row) => row.owner) ? [{ name: "owner", cell: (row) => row.owner, sort: (row) => row.owner }] : []),
    ];
    const show = table(byId("overview"), columns, data.rows, {
      find: byId("find"),
      keep: (row) => isLarge(row) && (filter.value === "all" || !data.quiet.includes(state(row))),
      hidden: byId("hidden"),
      by: 2,
    });
    choose.addEventListener("change", () => { remember("metric", choose.value); show(); });
    filter.addEventListener("change", () => { remember("show", filter.value === "all" ? "" : "news"); show(); });
    size.addEventListener("change", () => { remember("size", size.value === "0" ? "" : size.value); show(); });
    byId("find").addEventListener("input", () => remember("find", byId("find").value));
  }

  const colour = (place) => `var(--c${place % 6})`;
  function median(values) {
    const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
  function ticks(low, high, n = 5) {
    const raw = (high - low) / n, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw) || raw;
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
    return found;
  }

  // Every day, every other day, or Mondays a whole number of weeks apart: at most `most` moments.
  function dayTicks(first, last, most) {
    const length = 86400, monday = 4; // 1970-01-05
    const step = [1, 2, 7, 14, 28, 56, 91, 182, 364].find((days) => (last - first) / length / days <= most - 1) || 728;
    const found = [];
    for (let at = (Math.ceil((first / length - monday) / step) * step + monday) * length; at <= last; at += step * length) found.push(at);
    return found.length ? found : [first];
  }

  function workload(data) {
    const choose = byId("metric"), chart = byId("chart"), zero = byId("zero"), range = byId("range");
    for (const [name, metric] of Object.entries(data.metrics)) choose.append(make("option", { value: name }, metric.name));
    const wanted = chart.dataset.metric || recall("metric");
    if (data.metrics[wanted]) choose.value = wanted;
    if ([...range.options].some((option) => option.value === recall("range"))) range.value = recall("range");
    const shown = data.series.map(() => true);
    data.series.forEach((series, place) => {
      byId("series").append(make("label", {}, make("input", { type: "checkbox", checked: "", onchange: (event) => { shown[place] = event.target.checked; plot(); } }),
        " ", make("span", { class: "swatch", style: `background:${colour(place)}` }), series.label));
    });

    function plot() {
      const metric = choose.value, unit = data.metrics[metric]?.unit ?? "1";
      const values = data.runs.values[metric] || [];
      const last = data.nights[data.nights.length - 1];
      const first = range.value ? Math.max(data.nights[0], last - 86400 * Number(range.value)) : data.nights[0];
      const isIn = (night) => data.nights[night] >= first;
      const counts = (at) => shown[data.runs.series[at]] && isIn(data.runs.night[at]);
      const isOk = (at) => data.outcomes[data.runs.outcome[at]] === "ok" && data.runs.counts[at] && values[at] !== null;
      const places = values.map((_, at) => at).filter(counts);
      const good = places.filter(isOk);
      const width = Math.max(300, chart.clientWidth), height = 340;
      const [left, right, top, bottom] = [70, 14, 58, 46];
      const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" });
      chart.replaceChildren(svg);
      if (!good.length) {
        svg.append(draw("text", { x: left, y: height / 2 }, "No run of the selected environments and nights ended ok."));
        return;
      }
      const known = good.map((at) => values[at]).sort((a, b) => a - b);
      // An outlier would compress the range of all other runs: it is drawn at the edge, with its value.
      const span = known[Math.floor(known.length * 0.995)] - known[Math.floor(known.length * 0.005)];
      let high = Math.min(known[known.length - 1], known[Math.floor(known.length * 0.995)] + span);
      let low = zero.checked ? 0 : Math.max(known[0], known[Math.floor(known.length * 0.005)] - span);
      if (high === low) { high = low ? low * 1.05 : 1; low = zero.checked ? 0 : low * 0.95; }
      const margin = 0.06 * (high - low);
      high += margin; if (!zero.checked) low -= margin;
      if (known[0] >= 0) low = Math.max(low, 0);
      const x = (seconds) => left + (width - left - right) * (last === first ? 0.5 : (seconds - first) / (last - first));
      const clamp = (value) => Math.min(high, Math.max(low, value));
      const y = (value) => height - bottom - (height - top - bottom) * (clamp(value) - low) / (high - low);
      const [by, name] = scaled(high, unit);
      for (const value of ticks(low / by, high / by)) {
        svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: y(value * by), y2: y(value * by) }));
        svg.append(draw("text", { x: left - 8, y: y(value * by) + 4, "text-anchor": "end" }, String(Number(value.toPrecision(4)))));
      }
      svg.append(draw("text", { x: 4, y: 14 }, `${data.metrics[metric].name}${name ? `, ${name}` : ""}`));
      for (const seconds of dayTicks(first, last, Math.max(3, Math.floor((width - left - right) / 77)))) {
        svg.append(draw("line", { class: "grid", x1: x(seconds), x2: x(seconds), y1: top, y2: height - bottom }));
        svg.append(draw("text", { x: Math.min(x(seconds), width - 34), y: height - 6, "text-anchor": "middle" }, day(seconds)));
      }
      // Builds: a tick at each night with changed packages.
      data.series.forEach((_, series) => {
        if (!shown[series]) return;
        let before = null, path = "";
        for (const at of places) {
          if (data.runs.series[at] !== series) continue;
          if (before !== null && data.runs.build[at] !== before) path += `M${x(data.nights[data.runs.night[at]]).toFixed(1)} ${height - bottom + 4}v6`;
          before = data.runs.build[at];
        }
        svg.append(draw("path", { d: path, stroke: colour(series), "stroke-width": 1.2, fill: "none", opacity: 0.8 }));
      });
      for (const [series, night, only, reason] of data.segments) {
        if (!shown[series] || !isIn(night) || (only && only !== metric)) continue;
        const at = x(data.nights[night]);
        svg.append(draw("line", { class: "mark", x1: at, x2: at, y1: top, y2: height - bottom }, draw("title", {}, reason)));
        svg.append(draw("text", { x: at + 3, y: height - bottom - 4 }, reason));
      }
      const rows = [-Infinity, -Infinity, -Infinity]; // where the last label of each row ends
      const changed = data.changes.filter(([series, only, night]) => shown[series] && isIn(night) && only === metric).sort((a, b) => a[2] - b[2]);
      for (const [, , index, , ratio, , , worse] of changed) {
        const at = x(data.nights[index]), tone = worse ? "var(--worse)" : "var(--better)";
        svg.append(draw("line", { class: "step", x1: at, x2: at, y1: top, y2: height - bottom, stroke: tone }));
        const row = rows.findIndex((end) => end < at - 34);
        if (row < 0) continue; // the list below contains it
        rows[row] = at + 34;
        svg.append(draw("text", { x: Math.min(at, width - 34), y: top - 6 - 13 * row, "text-anchor": "middle", style: `fill:${tone}` }, `${worse ? "▲" : "▼"} ${percent(ratio)}`));
      }
      data.series.forEach((_, series) => {
        if (!shown[series]) return;
        const own = good.filter((at) => data.runs.series[at] === series), nights = new Map();
        for (const at of own) {
          const night = data.runs.night[at];
          if (!nights.has(night)) nights.set(night, []);
          nights.get(night).push(values[at]);
        }
        const line = [...nights].sort((a, b) => a[0] - b[0]).map(([night, found]) => `${x(data.nights[night]).toFixed(1)} ${y(median(found)).toFixed(1)}`);
        svg.append(draw("path", { d: line.length ? `M${line.join("L")}` : "", fill: "none", stroke: colour(series), "stroke-width": 1, opacity: 0.55 }));
        const dots = own.map((at) => `M${x(data.nights[data.runs.night[at]]).toFixed(1)} ${y(values[at]).toFixed(1)}h0`).join("");
        svg.append(draw("path", { class: "dots", d: dots, fill: "none", stroke: colour(series), "stroke-width": 5, "stroke-linecap": "round" }));
        for (const at of own) {
          if (values[at] !== clamp(values[at])) svg.append(draw("text", { x: x(data.nights[data.runs.night[at]]) + 5, y: values[at] > high ? top + 10 : height - bottom - 16, style: `fill:${colour(series)}` }, `↑ ${quantity(values[at], unit)}`.replace("↑", values[at] > high ? "↑" : "↓")));
        }
        for (const at of places.filter((at) => data.runs.series[at] === series && !isOk(at))) {
          const outcome = data.outcomes[data.runs.outcome[at]];
          const aside = !data.runs.counts[at], symbol = BAD.includes(outcome) ? "✕" : aside ? "○" : "·";
          svg.append(draw("text", { x: x(data.nights[data.runs.night[at]]), y: height - bottom + 1, "text-anchor": "middle", style: `fill:${symbol === "✕" ? "var(--worse)" : "var(--soft)"}` }, symbol));
        }
      });
      const tip = make("div", { class: "tip", hidden: "" });
      chart.append(tip);
      const near = (event) => {
        const box = svg.getBoundingClientRect();
        const [px, py] = [(event.clientX - box.left) * width / box.width, (event.clientY - box.top) * height / box.height];
        let best = null, least = 900;
        for (const at of places) {
          const there = isOk(at) ? y(values[at]) : height - bottom;
          const away = (x(data.nights[data.runs.night[at]]) - px) ** 2 + (there - py) ** 2 / 4;
          if (away < least) [best, least] = [at, away];
        }
        return best;
      };
      svg.addEventListener("mousemove", (event) => {
        const at = near(event);
        tip.hidden = at === null;
        if (at === null) return;
        const [python, dask, distributed, commit] = data.builds[data.runs.build[at]];
        const lines = [minute(data.nights[data.runs.night[at]]), data.series[data.runs.series[at]].label,
          isOk(at) ? quantity(values[at], unit) : data.outcomes[data.runs.outcome[at]] + (data.runs.counts[at] ? "" : ", set aside"),
          `dask ${dask ?? "?"}, distributed ${distributed ?? "?"}, Python ${python ?? "?"}`,
          commit ? `workloads at ${commit.slice(0, 12)}` : null, `run ${data.runs.id[at]}`];
        tip.replaceChildren(...lines.filter(Boolean).map((line) => make("div", {}, line)));
        const box = chart.getBoundingClientRect(), over = event.clientX - box.left;
        tip.style.top = `${Math.max(0, event.clientY - box.top + 14)}px`;
        tip.style.left = over < box.width / 2 ? `${over + 14}px` : "auto";
        tip.style.right = over < box.width / 2 ? "auto" : `${box.width - over + 14}px`;
      });
      svg.addEventListener("mouseleave", () => { tip.hidden = true; });
      byId("legend").replaceChildren("Dots: runs; line: median of the night; ▲▼ lasting change; ✕ failed, ○ set aside by a mark; ticks below: changed packages.");
      changes(metric);
    }

    function changes(metric) {
      const place = byId("changes");
      if (!place) return;
      const found = data.changes.filter(([series, only]) => shown[series] && only === metric);
      const parts = [];
      if (found.length || data.regressions.length || data.marks.length) parts.push(make("h2", {}, "Changes"));
      const items = found.map(([series, , index, seen, ratio, low, high, worse, machine]) => make("li", {},
        make("span", { class: worse ? "worse" : "better" }, `${worse ? "▲" : "▼"} ${percent(ratio)}`),
        ` (${percent(low)} to ${percent(high)})${machine ? ", caused by the machine," : ""} on ${day(data.nights[index])}, detected ${day(data.nights[seen])}, ${data.series[series].label}`));
      for (const regression of data.regressions) {
        items.push(make("li", {}, make("span", { class: `tag ${regression.state}` }, regression.state), " ", make("a", { href: `${root}regressions/${regression.id}.html` }, regression.title)));
      }
      for (const mark of data.marks) items.push(make("li", {}, `mark: ${mark.kind}${mark.at ? ` at ${mark.at.slice(0, 10)}` : ""}, ${mark.reason} (${mark.by})`));
      if (items.length) parts.push(make("ul", {}, items));
      place.replaceChildren(...parts);
    }

    choose.addEventListener("change", () => { remember("metric", choose.value); plot(); });
    zero.addEventListener("change", plot);
    range.addEventListener("change", () => { remember("range", range.value); plot(); });
    let waiting = null;
    addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(plot, 80); });
    plot();
    if (!byId("runs")) return;
    const rows = data.runs.id.map((id, at) => {
      const [python, dask, distributed, commit] = data.builds[data.runs.build[at]];
      const row = { id, at, time: data.nights[data.runs.night[at]], label: data.series[data.runs.series[at]].label,
        outcome: data.outcomes[data.runs.outcome[at]] + (data.runs.counts[at] ? "" : ", set aside"), dask, distributed, python, commit };
      row.text = `${id} ${minute(row.time)} ${row.label} ${row.outcome} ${dask} ${distributed} ${commit}`.toLowerCase();
      return row;
    }).reverse();
    const metrics = Object.keys(data.metrics);
    table(byId("runs"), [
      { name: "night", cell: (row) => minute(row.time), sort: (row) => row.time },
      { name: "environment", cell: (row) => row.label, sort: (row) => row.label },
      { name: "outcome", cell: (row) => make("span", { class: BAD.includes(row.outcome) ? "worse" : null }, row.outcome), sort: (row) => row.outcome },
      ...metrics.map((metric) => ({ name: metric.replaceAll("_", " "), number: true,
        cell: (row) => quantity(data.runs.values[metric][row.at], data.metrics[metric].unit), sort: (row) => data.runs.values[metric][row.at] })),
      { name: "dask", cell: (row) => row.dask ?? "", sort: (row) => row.dask },
      { name: "run", cell: (row) => make("code", {}, row.id), sort: (row) => row.id },
    ], rows, { most: 60, find: byId("find"), hidden: byId("hidden") });
  }

  if (window.benchkitOverview) overview(window.benchkitOverview);
  if (window.benchkitWorkload) workload(window.benchkitWorkload);
})();
