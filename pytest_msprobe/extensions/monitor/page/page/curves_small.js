/* Small curves next to each other: other statistics and other ranks of a tensor. */

const SMALL = { width: 200, height: 74 };

function multiples(title, all, name, choose, range = null) {
  if (!all.length) return;
  const figures = all.map((series) => {
    const box = element("span", [], "small-plot"), label = name(series);
    const chosen = series === state.rows[state.cursor.row];
    const options = { ...SMALL, label, unit: "", steps: [], wanted: "auto", axis: "step", range, isSmall: true };
    curves.small.push(new CurvePlot(box, linesOf(series), options));
    return button([element("span", label, "caption"), box], () => choose(series), `figure${chosen ? " chosen" : ""}`);
  });
  byId("details").append(element("h3", title), element("div", figures, "grid"));
}

// Small multiples are read side by side: they share their scale.
function commonRange(all) {
  const values = pointsInSight(all.flatMap(linesOf)).flatMap(([, low, high]) => [low, high]).filter(Number.isFinite);
  const [low, high] = [Math.min, Math.max].map((most) => values.reduce((a, b) => most(a, b), values[0]));
  return low < high ? [low, high] : null;
}
