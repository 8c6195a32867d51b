const selected = (window.benchkitSelected ??= new Map());
if (!window.benchkitShift) selected.clear();
const rank = source.data.rank ?? source.data.x;
for (const index of source.selected.indices) selected.set(source.data.id[index], rank[index]);
const ids = [...selected.keys()].filter(id => id).sort((a, b) => selected.get(a) - selected.get(b));
if (window.benchkitShift ? ids.length > 1 : ids.length) {
  selected.clear();
  window.location.search = window.benchkitShift
    ? `?view=pair&a=${ids[0]}&b=${ids[ids.length - 1]}` : `?view=run&id=${ids[0]}`;
}
