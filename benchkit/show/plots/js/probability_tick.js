// Label of the colour bar of probabilities: the direction is a word in addition to the colour.
const direction = tick > 0 ? " more" : tick < 0 ? " less" : "";
return `${Math.round(100 * Math.abs(tick))} %${direction}`;
