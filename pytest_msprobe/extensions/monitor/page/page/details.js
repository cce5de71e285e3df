/* The chosen tensor: its curves and what is done with them. */

const LEAST_PLOT = 260, AROUND_PLOT = 20;
// The plots of the chosen tensor, its own first, and the step that the pointer is at.
const curves = { plots: [], step: null };

function drawDetails() {
  // Measured first: once it is filled, the browser would have to lay it out twice.
  const box = byId("details"), width = Math.max(LEAST_PLOT, box.clientWidth - AROUND_PLOT), series = state.chosen;
  for (const { plot } of curves.plots.splice(0)) plot.destroy();
  byId("smoothness").value = Number(shown("smoothing")) || "off";
  if (!series) return box.replaceChildren(element("p", "Choose a row of the heat map to see its curves.", "soft"));
  const { tensor, statistic } = series, name = tensorText(tensor), findings = findingsOf(series);
  const micro = tensor.micro_step === null ? "" : `micro step ${tensor.micro_step}`;
  const facts = [tensor.task, rankOf(series), micro];
  const binned = page.binned ? "least to greatest of each bin" : "";
  const steps = findings.filter((one) => one.statistic === statistic).map(({ step }) => step);
  box.replaceChildren(
    element("h2", name), element("div", facts.filter(Boolean).join(", "), "soft"),
    listOf(findings.map(({ message, outcome }) => element("span", message, outcome))),
    linkButton(linkOf(series)), element("div", [], "", { id: "readout" }),
    headOf(statistic, series.golden ? ["target", "golden"] : [], series.exact ? "every step" : binned),
  );
  const options = { width, axis: shown("axis"), marked: steps.filter((step) => step !== null) };
  const [own, gap] = [`${statistic} of ${name}`, `relative gap of ${name}`];
  addPlot(shownLines(series), { ...options, height: 220, label: own, unit: statistic, wanted: shown("scale") });
  if (series.gap && series.golden) {
    box.append(headOf("relative gap", series.compared ? ["gap", "allowed"] : []));
    addPlot(gapLines(series), { ...options, height: 150, label: gap, unit: "relative gap", wanted: "auto" });
  }
  box.append(...nextSteps({ dump: page.files[series.rank], record: itemOf(series) }));
  otherCurves(series);
  // When the plots have their scales.
  queueMicrotask(showCursor);
}

function headOf(title, keys, meaning = "") {
  const shownKeys = keys.map((key) => element("span", key, `key ${key}`));
  return element("h3", [title, ...shownKeys, element("span", meaning, "soft")]);
}

function addPlot(lines, options) {
  const box = element("div", [], "curve-plot");
  byId("details").append(box);
  curves.plots.push(plotCurves(box, lines, options));
  box.addEventListener("dblclick", () => heatMap.showColumns(0, BINS));
  box.addEventListener("mouseleave", showCursor);
  box.addEventListener("click", () => {
    if (curves.step !== null) choose({ row: heatMap.cursor.row, column: curves.step });
  });
}

/* The lines of a series; raw ones are faint behind what is smoothed. */
function shownLines(series) {
  const lines = linesOf(series), smoothing = Number(shown("smoothing"));
  return smoothing ? lines.flatMap((line) => [{ ...line, isFaint: true }, smoothed(line, smoothing)]) : lines;
}

/* The numbers of the plot, as a file. */
function download() {
  byId("download").href = `data:text/csv,${encodeURIComponent(csvOf(state.chosen))}`;
  byId("download").download = `${fragmentOf(state.chosen).replace(/[^\w.-]+/g, "_")}.csv`;
}

function csvOf(series) {
  const lines = linesOf(series);
  const namesOf = ({ className: name, isBand }) => (isBand ? [`${name} least`, `${name} greatest`] : [name]);
  const named = lines.flatMap(namesOf);
  const [steps, ...columns] = uPlot.join(lines.map(({ x, low, high, isBand }) => (isBand ? [x, low, high] : [x, low])));
  const times = (step) => (page.times ? [new Date(timeOf(step) * 1000).toISOString()] : []);
  const rows = steps.map((step, at) => [step, ...times(step), ...columns.map((column) => column[at] ?? "")]);
  return [["step", ...(page.times ? ["time"] : []), ...named], ...rows].map((cells) => cells.join(",")).join("\n");
}

/* Small curves next to each other: other statistics and other ranks of a tensor. */

function otherCurves(series) {
  const ofTensor = page.series.filter((one) => one.tensor === series.tensor);
  const others = ofTensor.filter((one) => one.rank === series.rank && one !== series);
  const ranks = ofTensor.filter((one) => one.statistic === series.statistic);
  multiples("other statistics", others, (one) => one.statistic);
  // What is compared by eye shares a scale.
  const range = ranks.length > 1 && rangeOf(pointsInSight(ranks.flatMap(linesOf)));
  if (ranks.length > 1) multiples(`${series.statistic} by rank`, ranks, rankOf, range);
}

function multiples(title, all, name, range = null) {
  const figures = all.map((series) => {
    const box = element("span", [], "small-plot"), label = name(series);
    const options = { width: 160, height: 74, label, wanted: "auto", axis: "step", range, isSmall: true };
    curves.plots.push(plotCurves(box, linesOf(series), options));
    const look = `figure${series === state.chosen ? " chosen" : ""}`;
    return button([element("span", label, "caption"), box], () => show(series), look);
  });
  if (all.length) byId("details").append(element("h3", title), element("div", figures, "grid"));
}

/* The step under the pointer, or the chosen one, in every plot. */

function showStep(bin) {
  curves.step = bin;
  if (state.chosen) byId("readout").textContent = cellText(state.chosen, bin);
}

function showCursor() {
  const { column: bin } = heatMap.cursor, [{ plot, place }] = curves.plots;
  if (bin === null || !heatMap.isShown(bin)) return;
  showStep(bin);
  curves.step = null;
  byId("details").querySelector("button.link").replaceWith(linkButton(linkOf(state.chosen)));
  plot.setCursor({ left: plot.valToPos(place(middleOf(bin)), "x"), top: 10 }, false, true);
}

function cellText(series, bin) {
  const hasBoth = series.golden, gap = series.gap && hasBoth ? gapOf(levelsOfGap(series)[bin]) : NaN;
  const [target, golden] = ["target", "golden"].map((side) => rangeText(curve(series, side), bin));
  const parts = hasBoth ? [target && `target ${target}`, golden && `golden ${golden}`] : [target];
  // A byte holds a gap to about 4 %.
  if (!Number.isNaN(gap)) parts.push(gap === 0 ? "equal" : `apart by about ${numberText(+gap.toPrecision(1))}`);
  return `${binText(bin)}: ${parts.filter(Boolean).join(", ")}`;
}
