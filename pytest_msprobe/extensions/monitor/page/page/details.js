/* The chosen tensor: its curves and what is done with them. */

const SCALES = ["auto", "linear", "log"], SMOOTHEST = 0.98, LEAST_PLOT = 260, AROUND_PLOT = 20, FINDINGS_LISTED = 5;
const curves = {
  smoothing: remembered("monitor.smoothing", 0), axis: page.times ? remembered("monitor.axis", "step") : "step",
  scale: "auto", pins: [], plots: [], small: [], step: null,
};

function drawDetails() {
  // Measured first: once it is filled, the browser would have to lay it out twice.
  const box = byId("details"), width = Math.max(LEAST_PLOT, box.clientWidth - AROUND_PLOT), series = state.chosen;
  for (const one of [...curves.plots, ...curves.small]) one.plot.destroy();
  [curves.plots, curves.small] = [[], []];
  if (!series) return box.replaceChildren(element("p", "Choose a row of the heat map to see its curves.", "soft"));
  const { tensor, statistic } = series, name = tensorText(tensor), findings = findingsOf(series);
  const micro = tensor.micro_step === null ? "" : `micro step ${tensor.micro_step}`;
  const facts = [tensor.task, rankOf(series), micro];
  const steps = findings.filter((one) => one.statistic === statistic).map(({ step }) => step);
  box.replaceChildren(
    element("h2", name), element("div", facts.filter(Boolean).join(", "), "soft"), findingsList(findings),
    curveControls(series), element("div", [], "", { id: "readout" }), titleOf(series), ...pinList(),
  );
  const options = { width, axis: curves.axis, marked: steps.filter((step) => step !== null) };
  const [own, gap] = [`${statistic} of ${name}`, `relative gap of ${name}`];
  addPlot(shownLines(series), { ...options, height: 220, label: own, unit: statistic, wanted: curves.scale });
  if (series.gap && series.golden) {
    box.append(headOf("relative gap", series.compared ? ["gap", "allowed"].map((key) => [key, key]) : []));
    addPlot(gapLines(series), { ...options, height: 150, label: gap, unit: "relative gap", wanted: "auto" });
  }
  box.append(...nextSteps({ dump: page.files[series.rank], record: itemOf(series) }));
  otherCurves(series);
  showCursor();
}

function findingsList(findings) {
  const lines = findings.slice(0, FINDINGS_LISTED).map((one) => element("span", one.message, one.outcome));
  const left = findings.length - lines.length;
  return listOf([...lines, ...(left > 0 ? [element("span", `and ${left} more`, "soft")] : [])]);
}

function titleOf(series) {
  const both = [["target", "target"], ["golden", "golden"]], own = [["target", tensorText(series.tensor)]];
  const binned = page.binned ? "least to greatest of each bin" : "";
  const keys = series.golden ? both : curves.pins.length ? own : [];
  return headOf(series.statistic, keys, series.exact ? "every step" : binned);
}

function headOf(title, keys, meaning = "") {
  const shown = keys.map(([look, text]) => element("span", text, `key ${look}`));
  return element("h3", [title, ...shown, element("span", meaning, "soft")]);
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

/* The lines of a series over those that are pinned; raw ones are faint behind what is smoothed. */
function shownLines(series) {
  const pinned = curves.pins.filter((one) => one !== series).flatMap((one) => {
    const targets = linesOf(one).filter((line) => line.className === "target");
    return targets.map((line) => ({ ...line, colour: pinColour(one) }));
  });
  const lines = [...pinned, ...linesOf(series)], { smoothing } = curves;
  return smoothing ? lines.flatMap((line) => [{ ...line, isFaint: true }, smoothed(line, smoothing)]) : lines;
}

/* Smoothing, scale, other tensors over this one, the numbers as a file. */

function curveControls(series) {
  const { smoothing, pins } = curves, isPinned = pins.includes(series);
  const range = { type: "range", min: 0, max: SMOOTHEST, step: 0.02, value: smoothing, "aria-label": "Smoothing" };
  const slider = element("input", [], "", range);
  const shown = element("span", smoothing ? String(smoothing) : "off", "soft");
  slider.addEventListener("change", () => {
    remember("monitor.smoothing", (curves.smoothing = Number(slider.value)));
    drawDetails();
    byId("details").querySelector("input").focus();
  });
  const setAxis = (name) => remember("monitor.axis", (curves.axis = name));
  const pin = button(isPinned ? "unpin" : "pin", () => setPin(series, !isPinned));
  return element("div", [
    element("label", ["smoothing ", slider, shown]),
    choice("scale", SCALES, curves.scale, (name) => { curves.scale = name; }),
    ...(page.times ? [choice("axis", Object.keys(PLACES), curves.axis, setAxis)] : []),
    filled(pin, [], { title: "A pinned curve stays in the plot of others" }), downloadButton(series),
    linkButton(linkOf(series)),
  ], "controls curve-controls");
}

function choice(title, names, chosen, change) {
  const entries = names.map((name) => [name, name]);
  const list = choices(element("select"), entries, (name) => { change(name); drawDetails(); });
  list.value = chosen;
  return element("label", [`${title} `, list]);
}

function setPin(series, isPinned) {
  curves.pins = [...curves.pins.filter((one) => one !== series), ...(isPinned ? [series] : [])];
  drawDetails();
}

function pinColour(series) {
  const colours = themeColour("pins").split(",");
  return colours[curves.pins.indexOf(series) % colours.length].trim();
}

function pinList() {
  const lines = curves.pins.map((series) => {
    const name = element("span", fragmentOf(series), "key", { style: `color: ${pinColour(series)}` });
    return [name, button("unpin", () => setPin(series, false))];
  });
  return lines.length ? [listOf(lines, "pins")] : [];
}

function downloadButton(series) {
  const made = button("download", () => {
    const href = URL.createObjectURL(new Blob([csvOf(series)], { type: "text/csv" }));
    element("a", [], "", { href, download: `${fragmentOf(series).replace(/[^\w.-]+/g, "_")}.csv` }).click();
    URL.revokeObjectURL(href);
  });
  return filled(made, [], { title: "The numbers of this plot as CSV" });
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
    curves.small.push(plotCurves(box, linesOf(series), options));
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
