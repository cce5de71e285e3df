/* The heat map: a row for each tensor, a column for each bin; cells that share a pixel show the most conspicuous. */

const MOST_LABEL = 250, TOP = 20, STRIP = 16, LEAST_LABEL = 13;
const NOTHING = 0, NOT_FINITE = 255, MIDDLE = 128;

// A level is a byte. Of gaps it is as stored; of values 2 to 254 are how far above or below the row's usual size.
function levels(series) {
  if (state.colour === "gap") return levelsOfGap(series);
  return ((series.levels ??= {})[state.colour] ??= sizes(curve(series, state.colour)));
}

function sizes(found) {
  const made = new Uint8Array(BINS);
  if (!found) return made;
  const usual = usualSize(found);
  for (let bin = 0; bin < BINS; bin++) {
    const low = found.low[bin], high = found.high[bin];
    if (low > high) continue;
    if (!Number.isFinite(low) || !Number.isFinite(high)) made[bin] = NOT_FINITE;
    else made[bin] = sizeLevel(timesAway(low, usual) >= timesAway(high, usual) ? low : high, usual);
  }
  return made;
}

function usualSize(found) {
  const all = new Float32Array(BINS);
  let count = 0;
  for (let bin = 0; bin < BINS; bin++) {
    const size = Math.max(Math.abs(found.low[bin]), Math.abs(found.high[bin]));
    if (found.low[bin] <= found.high[bin] && size > 0 && size < Infinity) all[count++] = size;
  }
  return count ? all.subarray(0, count).sort()[count >> 1] : 1;
}

// The root, so that a factor of two is visible next to one of a thousand.
function sizeLevel(value, usual) {
  const decades = value === 0 ? -page.decades : Math.log10(Math.abs(value) / usual);
  return MIDDLE + Math.round(126 * Math.sign(decades) * Math.sqrt(Math.min(1, Math.abs(decades) / page.decades)));
}

// Of cells that share a pixel the one of the greatest weight is seen.
function conspicuous(level) {
  if (level === NOTHING || level === NOT_FINITE || state.colour === "gap") return level;
  return 1 + Math.abs(level - MIDDLE);
}

function timesAway(value, usual) {
  const times = Math.abs(value) / usual;
  return times < 1 ? 1 / times : times;
}

/* Colours: the stops of a scale, then what is not finite; what was not watched stays clear. */

function palette() {
  const stops = themeColour(scaleName()).split(",").map(rgb), notFinite = rgb(themeColour("not-finite"));
  const made = new Uint8Array(256 * 4);
  for (let level = 1; level < 256; level++) {
    const at = (Math.max(0, Math.min(252, level - 2)) / 252) * (stops.length - 1), before = Math.min(stops.length - 2, Math.floor(at));
    const colour = level === NOT_FINITE ? notFinite : stops[before].map((part, place) => part + (stops[before + 1][place] - part) * (at - before));
    made.set([...colour.map(Math.round), 255], level * 4);
  }
  return new Uint32Array(made.buffer);
}

function scaleName() {
  return state.colour === "gap" ? "gap-scale" : "value-scale";
}

function rgb(text) {
  return [1, 3, 5].map((at) => parseInt(text.trim().slice(at, at + 2), 16));
}

/* Where things are. */

const view = { left: MOST_LABEL, height: 0, width: 0, row: 0, scroll: 0, shown: [], cells: null };

function measure() {
  const scroller = byId("scroller"), room = scroller.clientHeight - TOP;
  const rows = Math.max(1, state.rows.length);
  view.row = state.rowHeight || Math.min(20, room / rows);
  byId("extent").style.height = `${TOP + Math.max(room, Math.floor(view.row * rows))}px`;
  view.height = Math.min(room, view.row * rows);
  view.left = Math.min(MOST_LABEL, scroller.clientWidth * 0.4);
  view.width = scroller.clientWidth - view.left - 8;
  view.scroll = scroller.scrollTop;
}

function columnX(bin) {
  return view.left + (view.width * (bin - state.from)) / (state.to - state.from);
}

function rowY(row) {
  return TOP + row * view.row - view.scroll;
}

function cellAt(event) {
  const box = byId("map").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const row = Math.floor((y - TOP + view.scroll) / view.row);
  const bin = state.from + Math.floor(((x - view.left) / view.width) * (state.to - state.from));
  if (y < TOP || row >= state.rows.length || x > view.left + view.width) return null;
  return { row, bin: x < view.left ? null : Math.min(bin, state.to - 1) };
}

/* Drawing. */

function drawMap() {
  measure();
  const pen = sharpPen(byId("map"), byId("map").clientWidth, byId("scroller").clientHeight);
  byId("map").style.width = "";
  if (state.rows.length) {
    pen.imageSmoothingEnabled = false;
    pen.drawImage(cellsOf(window.devicePixelRatio || 1), view.left, TOP, view.width, view.height);
  }
  labels(pen);
  ticks(pen);
  marks(pen);
}

// Most that is drawn anew only moves the cursor.
function cellsOf(ratio) {
  const { theme } = document.documentElement.dataset, { rows, colour, from, to } = state;
  const shown = [rows, colour, from, to, view.scroll, view.row, view.width, view.height, ratio, theme];
  if (!shown.every((one, place) => one === view.shown[place])) Object.assign(view, { shown, cells: cells(ratio) });
  return view.cells;
}

function cells(ratio) {
  const colours = palette(), weights = Uint8Array.from({ length: 256 }, (_, level) => conspicuous(level));
  const shown = state.to - state.from, left = (x, wide) => state.from + Math.floor((shown * x) / wide);
  const wide = Math.max(1, Math.min(shown, Math.round(view.width * ratio)));
  const top = view.scroll / view.row, rows = view.height / view.row;
  const each = view.row * ratio >= 1 ? Math.min(ratio, view.row * ratio) : ratio;
  const high = Math.max(1, Math.round(view.height * each));
  const image = new OffscreenCanvas(wide, high), pen = image.getContext("2d"), data = pen.createImageData(wide, high);
  const pixels = new Uint32Array(data.data.buffer);
  for (let y = 0; y < high; y++) {
    const from = Math.floor(top + (rows * y) / high);
    const to = Math.max(from + 1, Math.floor(top + (rows * (y + 1)) / high));
    const lines = [];
    for (let row = from; row < Math.min(to, state.rows.length); row++) lines.push(levels(state.rows[row]));
    for (let x = 0; x < wide; x++) {
      const first = left(x, wide), last = Math.max(first + 1, left(x + 1, wide));
      let most = NOTHING, weight = 0;
      for (const line of lines) {
        for (let bin = first; bin < last; bin++) {
          const own = weights[line[bin]];
          if (own > weight) {
            most = line[bin];
            weight = own;
          }
        }
      }
      pixels[y * wide + x] = colours[most];
    }
  }
  pen.putImageData(data, 0, 0);
  return image;
}

function labels(pen) {
  const every = Math.max(1, Math.ceil(LEAST_LABEL / view.row)), bottom = TOP + view.height, groups = groupsOfRows();
  const isLow = (group) => (group.end - group.row) * view.row <= widthOf(pen, group);
  const unnamed = new Set(groups.filter(isLow).map(({ task }) => task));
  pen.textBaseline = "middle";
  for (let row = Math.ceil(view.scroll / view.row / every) * every; row < state.rows.length; row += every) {
    const y = rowY(row) + view.row / 2, task = unnamed.has(taskOf(row)) ? ` (${taskOf(row)})` : "";
    if (y > bottom) break;
    pen.fillStyle = themeColour(row === state.cursor.row ? "fore" : "soft");
    pen.fillText(fitted(pen, rowText(state.rows[row]) + task, view.left - STRIP - 12), STRIP + 6, Math.max(TOP + 5, y));
  }
  groups.forEach((group, place) => strip(pen, group, themeColour(place % 2 ? "line" : "panel")));
}

/* Rows of one task that follow each other; the name of one that is too low is with the names of its rows. */
function groupsOfRows() {
  const groups = [];
  for (let row = 0; row < state.rows.length; row++) {
    const task = taskOf(row);
    if (groups.at(-1)?.task === task) groups.at(-1).end = row + 1;
    else groups.push({ task, row, end: row + 1 });
  }
  return groups;
}

function widthOf(pen, { task }) {
  return pen.measureText(task).width + 8;
}

function strip(pen, group, colour) {
  const top = Math.max(TOP, rowY(group.row)), low = Math.min(TOP + view.height, rowY(group.end));
  if (low <= top) return;
  pen.fillStyle = colour;
  pen.fillRect(0, top, STRIP, low - top);
  pen.fillStyle = themeColour("line");
  if (group.row) pen.fillRect(0, top, view.left + view.width, 1);
  if (low - top <= widthOf(pen, group)) return;
  pen.save();
  pen.translate(STRIP / 2, (top + low) / 2);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.fillStyle = themeColour("fore");
  pen.fillText(group.task, 0, 0);
  pen.restore();
}

function taskOf(row) {
  return tensorOf(state.rows[row])[TENSOR.task];
}

function ticks(pen) {
  pen.fillStyle = themeColour("soft");
  pen.textAlign = "left";
  pen.fillText("step", STRIP + 6, TOP / 2 - 1);
  pen.textAlign = "center";
  for (const step of tickSteps(view.width / 70)) {
    const x = columnX(placeOf(step));
    pen.fillText(step, Math.max(view.left + 8, Math.min(view.left + view.width - 12, x)), TOP / 2 - 1);
    pen.fillRect(x, TOP - 4, 1, 4);
  }
  pen.textAlign = "left";
}

// Round steps, at most so many; where steps were watched in bursts, some would stand on each other.
function tickSteps(most) {
  const first = page.starts[state.from], last = lastStep(state.to - 1);
  const every = niceStep((last - first) / most), made = [], apart = ((state.to - state.from) / most) * 0.6;
  for (let step = Math.ceil(first / every) * every; step <= last; step += every) {
    if (!made.length || placeOf(step) - placeOf(made.at(-1)) >= apart) made.push(step);
  }
  return made;
}

function marks(pen) {
  const rowOf = new Map(state.rows.map((series, row) => [rowName(series[SERIES.rank], series[SERIES.tensor]), row]));
  const placed = (finding) => ({
    row: rowOf.get(rowName(finding[FINDING.rank], finding[FINDING.tensor])),
    bin: finding[FINDING.step] === null ? -1 : binOf(finding[FINDING.step]),
  });
  pen.fillStyle = themeColour("fore");
  for (const { row, bin } of findingsHere().map(placed)) {
    if (row !== undefined && inSight(bin) && isRowSeen(row)) pen.fillRect(binX(bin) - 1.5, rowMiddle(row) - 1.5, 3, 3);
  }
  const first = page.findings[page.first], { row, bin } = state.cursor;
  if (first && isOfRank(first[FINDING.rank])) departure(pen, placed(first));
  if (row !== null && bin !== null && inSight(bin)) box(pen, bin, row, themeColour("fore"), 1.5);
}

const binX = (bin) => (columnX(bin) + columnX(bin + 1)) / 2;
const rowMiddle = (row) => rowY(row) + view.row / 2;
const isRowSeen = (row) => rowMiddle(row) > TOP && rowMiddle(row) < TOP + view.height;

function inSight(bin) {
  return bin >= state.from && bin < state.to;
}

function departure(pen, { row, bin }) {
  if (!inSight(bin)) return;
  const x = binX(bin), colour = themeColour("fail");
  strokeThrough(pen, [[x, TOP], [x, TOP + view.height]], colour, [4, 3]);
  fillShape(pen, [[x - 5, TOP - 8], [x + 5, TOP - 8], [x, TOP]], colour);
  if (row === undefined) return;
  box(pen, bin, row, colour, 2);
  const y = rowMiddle(row);
  if (isRowSeen(row)) fillShape(pen, [[view.left - 8, y - 5], [view.left - 8, y + 5], [view.left, y]], colour);
}

function box(pen, bin, row, colour, width) {
  const y = rowY(row), wide = Math.max(6, columnX(bin + 1) - columnX(bin)), high = Math.max(6, view.row);
  if (y + high < TOP || y > TOP + view.height) return;
  Object.assign(pen, { strokeStyle: colour, lineWidth: width });
  pen.strokeRect(binX(bin) - wide / 2, y + (view.row - high) / 2, wide, high);
}

function drawLegend() {
  const sides = [`1/${10 ** page.decades} of the row's median`, `${10 ** page.decades} times`];
  const [low, high] = state.colour === "gap" ? ["equal", "apart by 2 (relative)"] : sides;
  const bar = element("i", [], "", { style: `background: linear-gradient(90deg, ${themeColour(scaleName())})` });
  const notFinite = element("i", [], "one", { style: "background: var(--not-finite)" });
  byId("legend").replaceChildren(
    element("span", low), bar, element("span", high), element("span", [notFinite, "NaN or inf"], "whole"),
  );
}
