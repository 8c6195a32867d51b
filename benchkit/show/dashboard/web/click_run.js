const held = (window.benchkitHeld ??= new Map());
if (!window.benchkitShift) held.clear();
const rank = source.data.rank ?? source.data.x;
for (const at of source.selected.indices) held.set(source.data.id[at], rank[at]);
const ids = [...held.keys()].filter((id) => id).sort((a, b) => held.get(a) - held.get(b));
if (window.benchkitShift ? ids.length > 1 : ids.length) {
  held.clear();
  window.location.search = window.benchkitShift
    ? `?view=pair&a=${ids[0]}&b=${ids[ids.length - 1]}` : `?view=run&id=${ids[0]}`;
}
