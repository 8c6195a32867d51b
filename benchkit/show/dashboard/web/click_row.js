const [at] = source.selected.indices;
if (at !== undefined) window.location.search = source.data.way[at];
