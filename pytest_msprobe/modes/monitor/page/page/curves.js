/* The curves of one tensor: both runs, their gap, other statistics, other ranks. */

const MARGIN = { left: 60, right: 6, top: 6, bottom: 16 };

// A line: {className, low, high} by bin, or {className, steps, values}, exact.
function linesOf(series) {
  const exact = series[SERIES.exact];
  return ["golden", "target"].flatMap((side) => {
    const given = SERIES[side];
    if (exact?.[side]) return [(exact[side].line ??= exactLine(side, exact[side]))];
    return series[given] ? [{ className: side, ...curve(series, given) }] : [];
  });
}

function exactLine(className, [steps, values]) {
  return { className, steps: new Float64Array(bytes(steps).buffer), values: new Float64Array(bytes(values).buffer) };
}

// How far apart the runs are, step by step with what was allowed where something was found.
function gapLines(series) {
  const compared = series[SERIES.compared];
  return compared ? ["allowed", "gap"].map((name) => (compared[name].line ??= exactLine(name, compared[name]))) : [gapLine(series)];
}

function gapLine(series) {
  const found = Float64Array.from(levelsOfGap(series), gapOf);
  const low = found.map((gap) => (Number.isNaN(gap) ? Infinity : gap)), high = found.map((gap) => (Number.isNaN(gap) ? -Infinity : gap));
  return { className: "gap", low, high };
}

function levelsOfGap(series) {
  return (series.gaps ??= bytes(series[SERIES.gap]));
}

function* pointsOf(line) {
  if (line.steps) {
    for (let at = 0; at < line.steps.length; at++) {
      const place = placeOf(line.steps[at]);
      if (inSight(place)) yield [place, line.values[at], line.values[at]];
    }
  } else {
    for (let bin = state.from; bin < state.to; bin++) if (!(line.low[bin] > line.high[bin])) yield [bin + 0.5, line.low[bin], line.high[bin]];
  }
}

function chart(lines, { height, label, small = false, range = null, steps = [] }) {
  const width = small ? 200 : Math.max(300, byId("details").clientWidth - 26), left = MARGIN.left;
  const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, preserveAspectRatio: "none" });
  const points = lines.map((line) => [...pointsOf(line)]), scale = scaleOf(points.flat(), range);
  const bottom = height - (small ? 4 : MARGIN.bottom), inner = width - left - MARGIN.right;
  const x = (at) => left + (inner * (at - state.from)) / (state.to - state.from);
  const y = (value) => bottom - (bottom - MARGIN.top) * scale.at(value);
  for (const value of scale.ticks(small ? 2 : Math.max(2, Math.floor(height / 40)))) {
    made.append(svg("line", { class: "rule", x1: left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
    made.append(svg("text", { x: left - 4, y: y(value) + 3, "text-anchor": "end" }, shortText(value)));
  }
  if (!small) for (const step of tickSteps(inner / 80)) made.append(svg("text", { x: x(placeOf(step)), y: height - 3, "text-anchor": "middle" }, step));
  for (const at of steps.map(placeOf).filter(inSight)) made.append(svg("line", { class: "finding", x1: x(at), x2: x(at), y1: MARGIN.top, y2: bottom }));
  lines.forEach((line, place) => made.append(...paths(line, points[place], x, y, scale)));
  made.plot = { left, inner, width, x, bottom };
  return made;
}

function paths(line, points, x, y, scale) {
  const parts = [], marks = [];
  let run = [];
  const end = () => {
    if (run.length) parts.push(line.steps ? stroke(run) : band(run));
    run = [];
  };
  for (const [at, low, high] of points) {
    if (Number.isFinite(low) && Number.isFinite(high)) {
      if (scale.holds(high)) run.push([x(at), y(scale.holds(low) ? low : high), y(high)]);
      continue;
    }
    end();
    marks.push(svg("text", { class: "not-finite", x: x(at), y: MARGIN.top + 9 }, "×"));
  }
  end();
  return [svg("path", { class: `${line.className}${line.steps ? " exact" : ""}`, d: parts.join("") }), ...marks];
}

function stroke(run) {
  const place = ([at, low]) => `${at.toFixed(1)},${low.toFixed(1)}`;
  return `M${place(run[0])}L${(run.length > 1 ? run : [run[0], [run[0][0] + 1, run[0][1]]]).map(place).join(" ")}`;
}

function band(run) {
  const points = run.length > 1 ? run : [run[0], [run[0][0] + 1, run[0][1], run[0][2]]];
  const upper = points.map(([at, , high]) => `${at.toFixed(1)},${high.toFixed(1)}`), lower = points.map(([at, low]) => `${at.toFixed(1)},${low.toFixed(1)}`).reverse();
  return `M${upper.join("L")}L${lower.join("L")}Z`;
}

// Logarithmic where all values are positive and span more than two decades.
function scaleOf(points, range) {
  let low = range ? range[0] : Infinity, high = range ? range[1] : -Infinity;
  let positive = Infinity, negative = false;
  for (const [, least, most] of points) {
    if (!Number.isFinite(least) || !Number.isFinite(most)) continue;
    low = Math.min(low, least);
    high = Math.max(high, most);
    negative ||= least < 0;
    if (least > 0) positive = Math.min(positive, least);
    else if (most > 0) positive = Math.min(positive, most);
  }
  if (low > high) [low, high] = [0, 1];
  if (!range && !negative && positive < high / 100) return logarithmic(Math.max(positive, high * 1e-12), high);
  if (low === high) [low, high] = [low - Math.max(Math.abs(low), 1e-30) * 0.05, high + Math.max(Math.abs(high), 1e-30) * 0.05];
  const room = range ? 0 : (high - low) * 0.05;
  [low, high] = [low - room, high + room];
  const ticks = (count) => {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
    const made = [];
    for (let place = Math.ceil(low / step); place * step <= high; place++) made.push(place * step);
    return made;
  };
  return { at: (value) => (value - low) / (high - low), ticks, holds: () => true };
}

function logarithmic(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const ticks = (count) => {
    const every = Math.max(1, Math.ceil((last - first) / count)), made = [];
    for (let power = first; power <= last; power += every) made.push(10 ** power);
    return made;
  };
  return { at: (value) => (Math.log10(value) - first) / (last - first), ticks, holds: (value) => value > 0 };
}

/* What of a tensor is shown. */

function drawDetails() {
  const box = byId("details"), series = state.rows[state.cursor.row] ?? state.chosen, shown = box.charts = [];
  if (!series) {
    box.replaceChildren(element("p", "Choose a row of the heat map to see its curves.", "soft"));
    return;
  }
  const tensor = page.tensors[series[SERIES.tensor]], statistic = series[SERIES.statistic];
  const head = element("h2", tensorText(tensor));
  const facts = [tensor[TENSOR.task], page.ranks[series[SERIES.rank]], tensor[TENSOR.micro] === null ? "" : `micro step ${tensor[TENSOR.micro]}`];
  const findings = page.findings.filter((one) => one[FINDING.tensor] === series[SERIES.tensor] && one[FINDING.rank] === series[SERIES.rank]);
  const steps = findings.filter((one) => one[FINDING.statistic] === statistic && one[FINDING.step] !== null).map((one) => one[FINDING.step]);
  const readout = element("div");
  readout.id = "readout";
  box.replaceChildren(head, element("div", facts.filter(Boolean).join(", "), "soft"), listOf(findings), readout);

  const add = (title, lines, options) => {
    const drawn = chart(lines, { label: `${title} of ${tensorText(tensor)}`, ...options });
    shown.push(drawn);
    follow(drawn, series);
    return drawn;
  };
  const lines = linesOf(series), title = element("h3", statistic);
  for (const side of series[SERIES.golden] ? ["target", "golden"] : []) title.append(element("span", side, `key ${side}`));
  title.append(element("span", series[SERIES.exact] ? "every step" : page.binned ? "least to greatest of each bin" : "", "soft"));
  box.append(title, add(statistic, lines, { height: 160, steps }));
  if (series[SERIES.gap] && series[SERIES.golden]) {
    const gaps = element("h3", "relative gap");
    if (series[SERIES.compared]) gaps.append(element("span", "gap", "key gap"), element("span", "allowed", "key allowed"));
    box.append(gaps, add("relative gap", gapLines(series), { height: 110, steps }));
  }

  const same = (one) => one[SERIES.tensor] === series[SERIES.tensor] && one[SERIES.rank] === series[SERIES.rank];
  multiples("other statistics", page.series.filter((one) => same(one) && one !== series), (one) => one[SERIES.statistic], chooseSeries);
  const ranks = page.series.filter((one) => one[SERIES.tensor] === series[SERIES.tensor] && one[SERIES.statistic] === statistic);
  if (ranks.length > 1) multiples(`${statistic} by rank`, ranks, (one) => page.ranks[one[SERIES.rank]], chooseSeries, commonRange(ranks));
  showCursor();
}

function listOf(findings) {
  const list = element("ul");
  list.append(...findings.slice(0, 5).map((one) => element("li", one[FINDING.message], one[FINDING.outcome])));
  if (findings.length > 5) list.append(element("li", `and ${findings.length - 5} more`, "soft"));
  return list;
}

function multiples(title, all, name, choose, range = null) {
  if (!all.length) return;
  const grid = element("div", undefined, "grid");
  for (const series of all) {
    const figure = element("figure");
    figure.tabIndex = 0;
    figure.setAttribute("role", "button");
    figure.append(element("figcaption", name(series)), chart(linesOf(series), { height: 74, small: true, label: name(series), range }));
    figure.classList.toggle("chosen", series === state.rows[state.cursor.row]);
    figure.addEventListener("click", () => choose(series));
    figure.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(series); });
    grid.append(figure);
  }
  byId("details").append(element("h3", title), grid);
}

// Small multiples are read side by side: they share their scale.
function commonRange(all) {
  let low = Infinity, high = -Infinity;
  for (const series of all) {
    for (const line of linesOf(series)) {
      for (const [, least, most] of pointsOf(line)) {
        if (Number.isFinite(least)) low = Math.min(low, least);
        if (Number.isFinite(most)) high = Math.max(high, most);
      }
    }
  }
  return low < high ? [low, high] : null;
}

/* The step under the mouse, in every chart. */

function follow(drawn, series) {
  drawn.addEventListener("mousemove", (event) => {
    const bin = binUnder(drawn, event);
    if (bin !== null) showBin(bin, series);
  });
  drawn.addEventListener("mouseleave", showCursor);
  let from = null;
  drawn.addEventListener("mousedown", (event) => { from = binUnder(drawn, event); event.preventDefault(); });
  drawn.addEventListener("mouseup", (event) => {
    const bin = binUnder(drawn, event);
    if (bin === null || from === null) return;
    if (isDrag(from, bin)) zoom(from, bin);
    else moveTo(state.cursor.row, bin);
  });
}

function binUnder(drawn, event) {
  const box = drawn.getBoundingClientRect(), x = ((event.clientX - box.left) / box.width) * drawn.plot.width;
  const bin = state.from + Math.floor(((x - drawn.plot.left) / drawn.plot.inner) * (state.to - state.from));
  return bin >= state.from && bin < state.to ? bin : null;
}

function showCursor() {
  const series = state.rows[state.cursor.row];
  if (series && state.cursor.bin !== null && inSight(state.cursor.bin)) showBin(state.cursor.bin, series);
}

function showBin(bin, series) {
  byId("readout").textContent = cellText(series, bin);
  for (const drawn of byId("details").charts) {
    drawn.querySelector(".cursor")?.remove();
    const at = drawn.plot.x(bin + 0.5);
    drawn.append(svg("line", { class: "cursor", x1: at, x2: at, y1: MARGIN.top, y2: drawn.plot.bottom }));
  }
}

function cellText(series, bin) {
  const target = rangeText(curve(series, SERIES.target), bin), golden = rangeText(curve(series, SERIES.golden), bin);
  const gap = series[SERIES.gap] && series[SERIES.golden] ? gapOf(levelsOfGap(series)[bin]) : NaN;
  const parts = series[SERIES.golden] ? [target && `target ${target}`, golden && `golden ${golden}`] : [target];
  // A byte holds a gap to about 4 %.
  if (!Number.isNaN(gap)) parts.push(gap === 0 ? "equal" : `apart by about ${shortText(+gap.toPrecision(1))}`);
  return `${binText(bin)}: ${parts.filter(Boolean).join(", ")}`;
}
