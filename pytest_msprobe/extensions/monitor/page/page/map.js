/* The heat map: a row for each tensor, a column for each bin. */

const NOT_FINITE = 255, SIZES = 126;

const heatMap = new CellGrid(byId("map-box"), "Heat map of steps and tensors; arrow keys move, Enter shows curves", {
  rows: 0, columns: BINS, noun: "step", titleOf: (bin) => page.starts[bin], titles: roundSteps,
  levels: (row) => levels(state.rows[row]), colours: scaleColours,
  nameOf: (row) => rowText(state.rows[row]), groupOf: (row) => state.rows[row].tensor.task,
  textOf, choose, marks, changed: drawDetails,
  keys: () => ({ Enter: () => byId("details").querySelector(".figure")?.focus() }),
});

// A level is a byte. Of gaps it is as stored; of values it grows with how far they are above or below the usual size of
// their row, and is even above it.
function levels(series) {
  const side = shown("colour");
  return side === "gap" ? levelsOfGap(series) : ((series.levels ??= {})[side] ??= sizes(curve(series, side)));
}

function sizes(found) {
  if (!found) return new Uint8Array(BINS);
  const { low, high } = found, isEmpty = (bin) => low[bin] > high[bin];
  const all = low.map((one, bin) => (isEmpty(bin) ? 0 : Math.max(Math.abs(one), Math.abs(high[bin]))));
  const positive = all.filter((size) => size > 0 && size < Infinity).sort();
  const usual = positive[positive.length >> 1] ?? 1;
  return Uint8Array.from(low, (one, bin) => {
    if (isEmpty(bin)) return 0;
    if (!Number.isFinite(one + high[bin])) return NOT_FINITE;
    return Math.max(sizeLevel(one, usual), sizeLevel(high[bin], usual));
  });
}

// The root, so that a factor of two is visible next to one of a thousand.
function sizeLevel(value, usual) {
  const decades = value === 0 ? -page.decades : Math.log10(Math.abs(value) / usual);
  const size = Math.round(SIZES * Math.sqrt(Math.min(1, Math.abs(decades) / page.decades)));
  return 2 * size + (decades < 0 ? 1 : 2);
}

/* Colours between the stops of a scale, then that of what is not finite; what was not watched stays clear. */
function scaleColours() {
  const stops = themeColour(scaleName()).split(","), last = stops.length - 1;
  const shareOf = (level) => {
    if (shown("colour") === "gap") return Math.max(0, level - 2) / 252;
    const size = Math.floor((level - 1) / 2) / SIZES;
    return level % 2 ? (1 - size) / 2 : (1 + size) / 2;
  };
  return Array.from({ length: 256 }, (_, level) => {
    if (level === 0 || level === NOT_FINITE) return level ? themeColour("not-finite") : "transparent";
    const at = last * shareOf(level), before = Math.min(last - 1, Math.floor(at));
    return `color-mix(in srgb, ${stops[before + 1]} ${100 * (at - before)}%, ${stops[before]})`;
  });
}

const scaleName = () => (shown("colour") === "gap" ? "gap-scale" : "value-scale");

/* Round steps, with their bins. Where steps were watched in bursts, some would be on each other. */
function roundSteps(most) {
  const first = page.starts[heatMap.from], last = lastStep(heatMap.to - 1), every = niceStep((last - first) / most);
  const apart = (heatMap.to - heatMap.from) / most, places = new Map();
  for (let step = Math.ceil(first / every) * every; step <= last; step += every) {
    places.set(Math.round(binOf(step) / apart), [binOf(step), step]);
  }
  return places.values();
}

/* A dot where something was found; a line and a frame where it all began. */
function marks(pen) {
  const [first] = page.findings, [low, high] = [heatMap.top, heatMap.top + heatMap.height];
  const start = first && isOfRank(first.rank) && first.step !== null && heatMap.x(binOf(first.step) + 0.5);
  if (start) strokeThrough(pen, [[start, low], [start, high]], themeColour("fail"), [4, 3]);
  state.rows.forEach((series, row) => findingsOf(series).forEach((one) => {
    if (one.step === null || (one !== first && one.statistic && one.statistic !== shown("statistic"))) return;
    const cell = { row, column: binOf(one.step) }, [x, y] = heatMap.middle(cell);
    if (one === first) return heatMap.frame(pen, cell, themeColour("fail"));
    for (const [colour, size] of [["back", 5], ["fore", 3]]) {
      pen.fillStyle = themeColour(colour);
      pen.fillRect(x - size / 2, y - size / 2, size, size);
    }
  }));
}

function drawLegend() {
  const most = 10 ** page.decades, sides = [`1/${most} of the row's median`, `${most} times`];
  const [low, high] = shown("colour") === "gap" ? ["equal", "apart by 2 (relative)"] : sides;
  const bar = element("i", [], "scale", { style: `background: linear-gradient(90deg, var(--${scaleName()}))` });
  const notFinite = element("i", [], "", { style: "background: var(--not-finite)" });
  byId("legend").replaceChildren(
    element("span", low), bar, element("span", high), element("span", [notFinite, "NaN or inf"]),
  );
}
