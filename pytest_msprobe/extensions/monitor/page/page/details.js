/* The chosen tensor: its curves and what is done with them. */

const SCALES = ["auto", "linear", "log"], SMOOTHEST = 0.98, LEAST_PLOT = 260, AROUND_PLOT = 20;
const curves = { smoothing: remembered("monitor.smoothing", 0), axis: page.times ? remembered("monitor.axis", "step") : "step", scale: "auto", pins: [], plots: [] };

function drawDetails() {
  // Measured first: once it is filled, the browser would have to lay it out twice.
  const box = byId("details"), width = Math.max(LEAST_PLOT, box.clientWidth - AROUND_PLOT), series = state.rows[state.cursor.row] ?? state.chosen;
  for (const one of curves.plots) one.plot.destroy();
  curves.plots = [];
  if (!series) {
    box.replaceChildren(element("p", "Choose a row of the heat map to see its curves.", "soft"));
    return;
  }
  const tensor = page.tensors[series[SERIES.tensor]], statistic = series[SERIES.statistic];
  const facts = [tensor[TENSOR.task], page.ranks[series[SERIES.rank]], tensor[TENSOR.micro] === null ? "" : `micro step ${tensor[TENSOR.micro]}`];
  const findings = page.findings.filter((one) => one[FINDING.tensor] === series[SERIES.tensor] && one[FINDING.rank] === series[SERIES.rank]);
  const steps = findings.filter((one) => one[FINDING.statistic] === statistic && one[FINDING.step] !== null).map((one) => one[FINDING.step]);
  const readout = element("div");
  readout.id = "readout";
  box.replaceChildren(element("h2", tensorText(tensor)), element("div", facts.filter(Boolean).join(", "), "soft"), listOf(findings), curveControls(series), readout);
  box.append(titleOf(series), ...pinList());
  addPlot(shownLines(series), { width, height: 220, label: `${statistic} of ${tensorText(tensor)}`, unit: statistic, steps, wanted: curves.scale });
  if (series[SERIES.gap] && series[SERIES.golden]) {
    box.append(gapTitle(series));
    addPlot(gapLines(series).map(tabled), { width, height: 150, label: `relative gap of ${tensorText(tensor)}`, unit: "relative gap", steps, wanted: "auto" });
  }
  box.append(...nextSteps({ dump: page.files[series[SERIES.rank]], record: itemOf(series) }));
  otherCurves(series);
  showCursor();
}

function titleOf(series) {
  const title = element("h3", series[SERIES.statistic]), name = tensorText(page.tensors[series[SERIES.tensor]]);
  const keys = series[SERIES.golden] ? [["target", "target"], ["golden", "golden"]] : curves.pins.length ? [["target", name]] : [];
  for (const [side, text] of keys) title.append(element("span", text, `key ${side}`));
  title.append(element("span", series[SERIES.exact] ? "every step" : page.binned ? "least to greatest of each bin" : "", "soft"));
  return title;
}

function gapTitle(series) {
  const title = element("h3", "relative gap");
  if (series[SERIES.compared]) title.append(element("span", "gap", "key gap"), element("span", "allowed", "key allowed"));
  return title;
}

function addPlot(lines, options) {
  const box = element("div", undefined, "curve-plot");
  byId("details").append(box);
  curves.plots.push(new CurvePlot(box, lines, { ...options, axis: curves.axis }));
  box.addEventListener("dblclick", () => zoom(0, BINS - 1));
  box.addEventListener("mouseleave", showCursor);
  box.addEventListener("click", () => { if (curves.step !== null) moveTo(state.cursor.row, curves.step); });
}

/* Lines with their steps, as a plot has them: raw ones are faint behind what is smoothed. */
function tabled(line) {
  if (line.steps) return { ...line, x: [...line.steps], low: [...line.values], high: [...line.values], isBand: false };
  const bins = [];
  for (let bin = 0; bin < BINS; bin++) if (!(line.low[bin] > line.high[bin])) bins.push(bin);
  const isBand = bins.some((bin) => line.low[bin] !== line.high[bin] && Number.isFinite(line.low[bin]));
  return { ...line, x: bins.map(middleOf), low: bins.map((bin) => line.low[bin]), high: bins.map((bin) => line.high[bin]), isBand };
}

function shownLines(series) {
  const pinned = curves.pins.filter((one) => one !== series).flatMap((one) => linesOf(one).filter((line) => line.className === "target").map((line) => ({ ...line, colour: pinColour(one) })));
  const lines = [...pinned, ...linesOf(series)].map(tabled);
  if (!curves.smoothing) return lines;
  return lines.flatMap((line) => [{ ...line, isFaint: true }, smoothed(line)]);
}

/* An exponential moving average, without the pull towards zero of its first steps. */
function smoothed(line) {
  const weight = curves.smoothing;
  let sum = 0, share = 0;
  const values = line.x.map((_, at) => {
    const value = (line.low[at] + line.high[at]) / 2;
    if (!Number.isFinite(value)) return NaN;
    sum = weight * sum + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return sum / share;
  });
  const kept = values.map((value, at) => (Number.isNaN(value) ? -1 : at)).filter((at) => at >= 0), of = (list) => kept.map((at) => list[at]);
  return { className: line.className, colour: line.colour, x: of(line.x), low: of(values), high: of(values), isBand: false };
}

/* Smoothing, scale, other tensors over this one, the numbers as a file. */

function curveControls(series) {
  const box = element("div", undefined, "controls curve-controls"), slider = element("input"), shown = element("span", curves.smoothing ? String(curves.smoothing) : "off", "soft");
  Object.assign(slider, { type: "range", min: 0, max: SMOOTHEST, step: 0.02, value: curves.smoothing });
  slider.setAttribute("aria-label", "Smoothing");
  slider.addEventListener("change", () => {
    remember("monitor.smoothing", (curves.smoothing = Number(slider.value)));
    drawDetails();
    byId("details").querySelector("input").focus();
  });
  const smoothing = element("label", "smoothing ");
  smoothing.append(slider, shown);
  box.append(smoothing, choice("scale", SCALES, curves.scale, (name) => { curves.scale = name; }));
  if (page.times) box.append(choice("axis", Object.keys(AXES), curves.axis, (name) => remember("monitor.axis", (curves.axis = name))));
  box.append(pinButton(series), downloadButton(series), linkButton(linkOf(series)));
  return box;
}

function choice(title, names, chosen, change) {
  const label = element("label", `${title} `), list = element("select");
  list.append(...names.map((name) => element("option", name)));
  list.value = chosen;
  list.addEventListener("change", () => { change(list.value); drawDetails(); });
  label.append(list);
  return label;
}

function pinButton(series) {
  const isPinned = curves.pins.includes(series), button = element("button", isPinned ? "unpin" : "pin");
  button.title = "A pinned curve stays in the plot of others";
  button.addEventListener("click", () => setPin(series, !isPinned));
  return button;
}

function setPin(series, isPinned) {
  curves.pins = curves.pins.filter((one) => one !== series);
  if (isPinned) curves.pins.push(series);
  drawDetails();
}

function pinColour(series) {
  const colours = themeColour("pins").split(",");
  return colours[curves.pins.indexOf(series) % colours.length].trim();
}

function pinList() {
  if (!curves.pins.length) return [];
  const list = element("ul", undefined, "pins");
  for (const series of curves.pins) {
    const item = element("li"), name = element("span", fragmentOf(series), "key"), remove = element("button", "unpin");
    name.style.color = pinColour(series);
    remove.addEventListener("click", () => setPin(series, false));
    item.append(name, remove);
    list.append(item);
  }
  return [list];
}

function downloadButton(series) {
  const link = element("button", "download");
  link.title = "The numbers of this plot as CSV";
  link.addEventListener("click", () => {
    const file = element("a");
    file.href = URL.createObjectURL(new Blob([csvOf(series)], { type: "text/csv" }));
    file.download = `${fragmentOf(series).replace(/[^\w.-]+/g, "_")}.csv`;
    file.click();
    URL.revokeObjectURL(file.href);
  });
  return link;
}

function csvOf(series) {
  const lines = linesOf(series).map(tabled), named = lines.flatMap((line) => (line.isBand ? [`${line.className} least`, `${line.className} greatest`] : [line.className]));
  const table = uPlot.join(lines.map((line) => (line.isBand ? [line.x, line.low, line.high] : [line.x, line.low])));
  const times = (step) => (page.times ? [new Date(timeOf(step) * 1000).toISOString()] : []);
  const header = ["step", ...(page.times ? ["time"] : []), ...named];
  return [header, ...table[0].map((step, at) => [step, ...times(step), ...table.slice(1).map((column) => column[at] ?? "")])].map((line) => line.join(",")).join("\n");
}

function otherCurves(series) {
  const same = (one) => one[SERIES.tensor] === series[SERIES.tensor] && one[SERIES.rank] === series[SERIES.rank];
  multiples("other statistics", page.series.filter((one) => same(one) && one !== series), (one) => one[SERIES.statistic], chooseSeries);
  const ranks = page.series.filter((one) => one[SERIES.tensor] === series[SERIES.tensor] && one[SERIES.statistic] === series[SERIES.statistic]);
  if (ranks.length > 1) multiples(`${series[SERIES.statistic]} by rank`, ranks, (one) => page.ranks[one[SERIES.rank]], chooseSeries, commonRange(ranks));
}

/* The step under the mouse, in every plot. */

function onStep(bin, from) {
  curves.step = bin;
  const series = state.rows[state.cursor.row];
  if (series) byId("readout").textContent = cellText(series, bin);
  for (const one of curves.plots) if (one !== from) one.moveTo(bin);
}

function showCursor() {
  const series = state.rows[state.cursor.row];
  curves.step = null;
  if (!series || state.cursor.bin === null || !inSight(state.cursor.bin)) return;
  byId("readout").textContent = cellText(series, state.cursor.bin);
  byId("details").querySelector("button.link").replaceWith(linkButton(linkOf(series)));
  for (const one of curves.plots) one.moveTo(state.cursor.bin);
}

function cellText(series, bin) {
  const target = rangeText(curve(series, SERIES.target), bin), golden = rangeText(curve(series, SERIES.golden), bin);
  const gap = series[SERIES.gap] && series[SERIES.golden] ? gapOf(levelsOfGap(series)[bin]) : NaN;
  const parts = series[SERIES.golden] ? [target && `target ${target}`, golden && `golden ${golden}`] : [target];
  // A byte holds a gap to about 4 %.
  if (!Number.isNaN(gap)) parts.push(gap === 0 ? "equal" : `apart by about ${shortText(+gap.toPrecision(1))}`);
  return `${binText(bin)}: ${parts.filter(Boolean).join(", ")}`;
}
