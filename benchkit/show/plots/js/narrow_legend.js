// On a narrow screen, a legend at the right is moved below the plot area, in two columns.
if (figure.outer_width < 560 && figure.right.includes(legend)) {
  const nrows = Math.ceil(legend.items.length / 2);
  legend.setv({ nrows, location: "top_left", spacing: 6 });
  figure.setv({
    right: figure.right.filter((item) => item !== legend),
    below: [...figure.below, legend],
    height: figure.height + 20 * nrows,
  });
}
