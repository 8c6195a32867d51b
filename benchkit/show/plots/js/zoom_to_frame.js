// Set the x range to the selected frame.
const i = source.selected.indices[0];
if (i === undefined) return;
range.start = source.data.left[i];
range.end = source.data.right[i];
source.selected.indices = [];
