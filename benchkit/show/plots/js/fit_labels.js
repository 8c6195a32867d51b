// Cut labels of frames to their boxes, whose width in pixels changes with the range.
const data = source.data, pixels = figure.inner_width / (range.end - range.start);
data.label = data.name.map((name, i) => {
  const left = Math.max(data.left[i], range.start), right = Math.min(data.right[i], range.end);
  const room = Math.floor((right - left) * pixels / width) - 1;
  if (room < 3 || data.left[i] < range.start - 1e-9) return "";
  return name.length <= room ? name : name.slice(0, room - 1) + "…";
});
source.change.emit();
