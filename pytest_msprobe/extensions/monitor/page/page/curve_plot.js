/* Plots of lines over steps or times, by uPlot: dragging zooms the heat map and all plots, a click chooses a step. */

// Of positive values the scale begins at a low quantile.
const LOW_QUANTILE = 0.05, SPAN = 100, FOOT_ROOM = 0.04, MARK = 4, MOST_POWERS = 6, TIME_SPACE = 80, DAY = 86_400;
const PLACES = { step: (step) => step, time: timeOf };

/* At `marked` steps something was found. `wanted` is the scale that the reader chose,
   `range` one that several plots share. A small plot has no labels but those of its scale, and no pointer. */
function plotCurves(box, lines, { width, height, label, unit, marked = [], wanted, axis, range, isSmall = false }) {
  const points = pointsInSight(lines), ends = endsInSight(), place = PLACES[axis], [first, last] = ends.map(place);
  // The scale is that of what is in sight, and shows what was before the first finding.
  const scale = scaleOf(points, range, wanted, points.filter(([step]) => step < Math.min(...marked)));
  const below = points.filter(([, low]) => scale.isLog && low < scale.low);
  const notFinite = points.filter(([, low, high]) => !Number.isFinite(low) || !Number.isFinite(high));
  // What is not finite leaves a gap.
  const held = (value) => (Number.isFinite(value) ? Math.max(value, scale.isLog ? scale.low : value) : null);
  const columnsOf = ({ low, high, isBand }) => (isBand ? [low, high] : [low]).map((values) => values.map(held));
  const [steps, ...columns] = lines.length ? uPlot.join(lines.map((line) => [line.x, ...columnsOf(line)])) : [[]];
  const binAt = (x) => binOf(steps[plot.posToIdx(x)] ?? ends[0]);
  const select = ({ select: { left, width: wide } }) => {
    const [from, to] = [left, left + wide].map(binAt);
    // The plot is made anew by it.
    if (wide >= LEAST_DRAG) setTimeout(() => heatMap.showColumns(from, to + 1));
  };
  const found = { place, notFinite, below, marked: marked.filter((step) => step >= ends[0] && step <= ends[1]) };
  const plot = new uPlot({
    width, height, legend: { show: false }, ...(isSmall ? { padding: [8, 6, 8, 0] } : {}), ...looksOf(lines),
    scales: {
      x: { time: axis === "time", range: [first, last > first ? last : first + 1] },
      y: { distr: scale.isLog ? 3 : 1, range: [scale.low, scale.high] },
    },
    axes: [isSmall ? { show: false } : along(axis, last - first), across(unit, scale, isSmall)],
    cursor: {
      show: !isSmall, drag: { x: true, y: false, setScale: false }, points: { show: false }, y: false,
      sync: isSmall ? {} : { key: "curves", filters: { pub: (type) => type === "mousemove" } },
    },
    hooks: { setSelect: [select], draw: [(drawn) => drawMarks(drawn, found)] },
  }, [steps.map(place), ...columns], box);
  if (!isSmall) plot.over.addEventListener("mousemove", (event) => showStep(binAt(event.offsetX)));
  filled(box, [], { role: "img", "aria-label": label });
  return { plot, lines, scale, ...found };
}

const COLOURS = { target: "target", golden: "golden", gap: "fail", allowed: "soft" };

function looksOf(lines) {
  const series = [{}], bands = [];
  for (const line of lines) {
    const colour = themeColour(COLOURS[line.className]);
    const one = {
      stroke: colour, width: line.className === "golden" ? 2.5 : 1.4, alpha: line.isFaint ? 0.3 : 1,
      dash: line.className === "allowed" ? [4, 3] : undefined, points: { show: line.x.length < 3 },
    };
    const fill = `color-mix(in srgb, ${colour} 22%, transparent)`;
    if (line.isBand) bands.push({ series: [series.length + 1, series.length], fill });
    series.push(...(line.isBand ? [one, one] : [one]));
  }
  return { series, bands };
}

function along(axis, span) {
  if (axis === "step") return plotAxis("step", 22, { incrs: WHOLE_STEPS });
  const parts = span > 2 * DAY ? { month: "short", day: "numeric", hour: "2-digit" } : { timeStyle: "medium" };
  const values = (_, times) => times.map((time) => new Date(time * 1000).toLocaleString(undefined, parts));
  return plotAxis("time", 22, { space: TIME_SPACE, values });
}

function across(unit, { low, high, isLog }, isSmall) {
  const places = isSmall ? [low, high] : isLog ? powersBetween(low, high) : null;
  const given = places ? { splits: () => places, filter: (_, ticks) => ticks } : {};
  return plotAxis(unit, isSmall ? 44 : 58, { ...given, values: (_, ticks) => ticks.map(shortText) });
}

function powersBetween(low, high) {
  const [first, last] = [low, high].map((end) => Math.round(Math.log10(end)));
  const every = Math.ceil((last - first) / MOST_POWERS), count = Math.floor((last - first) / every) + 1;
  return Array.from({ length: count }, (_, at) => 10 ** (first + at * every));
}

/* Lines at findings, crosses at what is not finite, triangles at what is below the scale. */
function drawMarks({ ctx: pen, bbox: { top, height }, valToPos }, { place, notFinite, below, marked }) {
  const ratio = devicePixelRatio, dash = [3 * ratio, 3 * ratio], x = (step) => valToPos(place(step), "x", true);
  pen.save();
  Object.assign(pen, { font: `bold ${11 * ratio}px system-ui`, textAlign: "center" });
  for (const step of marked) strokeThrough(pen, [[x(step), top], [x(step), top + height]], themeColour("fail"), dash);
  pen.fillStyle = themeColour("not-finite");
  for (const [step] of notFinite) pen.fillText("×", x(step), top + 9 * ratio);
  for (const [step] of below) pointDown(pen, x(step), top + height, MARK * ratio, themeColour("soft"));
  pen.restore();
}

/* The scale is logarithmic where all values are positive and span more than two decades, unless the reader chose. It
   begins at a low quantile, so that neither an explosion hides what was before it nor a stray tiny value flattens the
   rest; what is below is drawn at its foot. The foot is a quantile of the `healthy` points too, of which there may be
   few before an explosion that lasts. Many decades begin where a curve along the foot is not taken for the axis. */
function scaleOf(points, range, wanted, healthy) {
  const [low, high] = range ?? rangeOf(points) ?? [0, 1], foot = Math.min(footOf(points), footOf(healthy));
  const isWide = wanted === "auto" && !range && low >= 0 && foot < high / SPAN;
  const isLog = foot < Infinity && high > 0 && (isWide || wanted === "log");
  const decades = () => uPlot.rangeLog(foot * (foot / high) ** FOOT_ROOM, high, 10, true);
  const ends = isLog ? decades() : uPlot.rangeNum(low, low || high ? high : 1, 0.05);
  return { isLog, low: ends[0], high: ends[1] };
}

function footOf(points) {
  const values = points.map(([, low, high]) => (low > 0 ? low : high)).filter((value) => value > 0 && value < Infinity);
  return Float64Array.from(values).sort()[Math.floor((values.length - 1) * LOW_QUANTILE)] ?? Infinity;
}
