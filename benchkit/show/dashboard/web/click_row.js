const [index] = source.selected.indices;
if (index !== undefined) window.location.search = source.data.target[index];
