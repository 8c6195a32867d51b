// Label of a time axis (Bokeh's formatter prints "11/2026"). Ticks closer than a day also get a
// time, because their dates would be equal.
const isClose = ticks.length > 1 && ticks[1] - ticks[0] < 864e5;
return new Date(tick).toISOString().slice(0, isClose ? 16 : 10).replace("T", " ");
