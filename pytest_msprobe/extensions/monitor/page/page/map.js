/* The heat map: a row for each tensor, a column for each bin; cells that share a pixel show the most conspicuous. */

const MOST_LABEL = 250, TOP = 20, STRIP = 16, LEAST_LABEL = 13;
const NOTHING = 0, NOT_FINITE = 255, MIDDLE = 128;

// A level is a byte. Of gaps it is as stored; of values 2 to 254 are how far above or below the row's usual size.
function levels(series) {
  if (state.colour === "gap") return (series.gaps ??= series[SERIES.gap] ? bytes(series[SERIES.gap]) : new Uint8Array(BINS));
  const side = state.colour;
  series.levels ??= {};
  return (series.levels[side] ??= sizes(curve(series, side)));
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
  const canvas = byId("map"), ratio = window.devicePixelRatio || 1, height = byId("scroller").clientHeight;
  canvas.width = canvas.clientWidth * ratio;
  canvas.style.height = `${height}px`;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  if (state.rows.length) {
    pen.imageSmoothingEnabled = false;
    pen.drawImage(cellsOf(ratio), view.left, TOP, view.width, view.height);
  }
  labels(pen);
  ticks(pen);
  marks(pen);
}

// Most that is drawn anew only moves the cursor.
function cellsOf(ratio) {
  const shown = [state.rows, state.colour, state.from, state.to, view.scroll, view.row, view.width, view.height, ratio, document.documentElement.dataset.theme];
  if (!shown.every((one, place) => one === view.shown[place])) Object.assign(view, { shown, cells: cells(ratio) });
  return view.cells;
}

function cells(ratio) {
  const colours = palette(), weights = Uint8Array.from({ length: 256 }, (_, level) => conspicuous(level)), shown = state.to - state.from;
  const wide = Math.max(1, Math.min(shown, Math.round(view.width * ratio)));
  const first = view.scroll / view.row, rows = view.height / view.row;
  const high = Math.max(1, Math.round(view.row * ratio >= 1 ? view.height * Math.min(ratio, view.row * ratio) : view.height * ratio));
  const image = new OffscreenCanvas(wide, high), pen = image.getContext("2d"), data = pen.createImageData(wide, high);
  const pixels = new Uint32Array(data.data.buffer);
  for (let y = 0; y < high; y++) {
    const from = Math.floor(first + (rows * y) / high), to = Math.max(from + 1, Math.floor(first + (rows * (y + 1)) / high));
    const lines = [];
    for (let row = from; row < Math.min(to, state.rows.length); row++) lines.push(levels(state.rows[row]));
    for (let x = 0; x < wide; x++) {
      const left = state.from + Math.floor((shown * x) / wide), right = Math.max(left + 1, state.from + Math.floor((shown * (x + 1)) / wide));
      let most = NOTHING, weight = 0;
      for (const line of lines) {
        for (let bin = left; bin < right; bin++) {
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
  const every = Math.max(1, Math.ceil(LEAST_LABEL / view.row)), bottom = TOP + view.height;
  const groups = groupsOfRows(), unnamed = new Set(groups.filter((group) => !hasRoom(pen, group)).map(({ task }) => task));
  pen.textBaseline = "middle";
  for (let row = Math.ceil(view.scroll / view.row / every) * every; row < state.rows.length; row += every) {
    const y = rowY(row) + view.row / 2;
    if (y > bottom) break;
    const chosen = row === state.cursor.row;
    pen.fillStyle = themeColour(chosen ? "fore" : "soft");
    pen.fillText(fitted(pen, rowText(state.rows[row]) + (unnamed.has(taskOf(row)) ? ` (${taskOf(row)})` : ""), view.left - STRIP - 12), STRIP + 6, Math.max(TOP + 5, y));
  }
  strips(pen, groups);
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

function hasRoom(pen, { task, row, end }) {
  return (end - row) * view.row > pen.measureText(task).width + 8;
}

function strips(pen, groups) {
  const bottom = TOP + view.height;
  groups.forEach(({ task, row, end }, place) => {
    const top = Math.max(TOP, rowY(row)), low = Math.min(bottom, rowY(end));
    if (low > top) {
      pen.fillStyle = themeColour(place % 2 ? "line" : "panel");
      pen.fillRect(0, top, STRIP, low - top);
      if (row) {
        pen.fillStyle = themeColour("line");
        pen.fillRect(0, top, view.left + view.width, 1);
      }
      if (low - top > pen.measureText(task).width + 8) {
        pen.save();
        pen.translate(STRIP / 2, (top + low) / 2);
        pen.rotate(-Math.PI / 2);
        pen.textAlign = "center";
        pen.fillStyle = themeColour("fore");
        pen.fillText(task, 0, 0);
        pen.restore();
      }
    }
  });
}

function taskOf(row) {
  return page.tensors[state.rows[row][SERIES.tensor]][TENSOR.task];
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
  const rough = Math.max(1, (last - first) / most), power = 10 ** Math.floor(Math.log10(rough));
  const every = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const made = [], apart = ((state.to - state.from) / most) * 0.6;
  for (let step = Math.ceil(first / every) * every; step <= last; step += every) {
    if (!made.length || placeOf(step) - placeOf(made.at(-1)) >= apart) made.push(step);
  }
  return made;
}

function marks(pen) {
  const rowOf = new Map(state.rows.map((series, row) => [rowName(series[SERIES.rank], series[SERIES.tensor]), row]));
  const bottom = TOP + view.height;
  pen.fillStyle = themeColour("fore");
  for (const finding of findingsHere()) {
    const row = rowOf.get(rowName(finding[FINDING.rank], finding[FINDING.tensor])), bin = finding[FINDING.step] === null ? -1 : binOf(finding[FINDING.step]);
    if (row === undefined || bin < state.from || bin >= state.to) continue;
    const y = rowY(row) + view.row / 2;
    if (y > TOP && y < bottom) pen.fillRect((columnX(bin) + columnX(bin + 1)) / 2 - 1.5, y - 1.5, 3, 3);
  }
  const first = page.findings[page.first];
  if (first && first[FINDING.step] !== null && isOfRank(first[FINDING.rank]) && inSight(binOf(first[FINDING.step]))) {
    departure(pen, binOf(first[FINDING.step]), rowOf.get(rowName(first[FINDING.rank], first[FINDING.tensor])));
  }
  const { row, bin } = state.cursor;
  if (row !== null && bin !== null && inSight(bin)) box(pen, bin, row, themeColour("fore"), 1.5);
}

function inSight(bin) {
  return bin >= state.from && bin < state.to;
}

function departure(pen, bin, row) {
  const x = (columnX(bin) + columnX(bin + 1)) / 2;
  pen.fillStyle = pen.strokeStyle = themeColour("fail");
  pen.setLineDash([4, 3]);
  pen.beginPath();
  pen.moveTo(x, TOP);
  pen.lineTo(x, TOP + view.height);
  pen.stroke();
  pen.setLineDash([]);
  pen.beginPath();
  pen.moveTo(x - 5, TOP - 8);
  pen.lineTo(x + 5, TOP - 8);
  pen.lineTo(x, TOP);
  pen.fill();
  if (row === undefined) return;
  box(pen, bin, row, themeColour("fail"), 2);
  const y = rowY(row) + view.row / 2;
  if (y < TOP || y > TOP + view.height) return;
  pen.beginPath();
  pen.moveTo(view.left - 8, y - 5);
  pen.lineTo(view.left - 8, y + 5);
  pen.lineTo(view.left, y);
  pen.fill();
}

function box(pen, bin, row, colour, width) {
  const x = columnX(bin), y = rowY(row), wide = Math.max(6, columnX(bin + 1) - x), high = Math.max(6, view.row);
  if (y + high < TOP || y > TOP + view.height) return;
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.strokeRect((x + columnX(bin + 1) - wide) / 2, y + (view.row - high) / 2, wide, high);
  pen.lineWidth = 1;
}

function drawLegend() {
  const bar = element("i"), other = element("i", undefined, "one");
  bar.style.background = `linear-gradient(90deg, ${themeColour(scaleName())})`;
  other.style.background = "var(--not-finite)";
  const ends = state.colour === "gap" ? ["equal", "apart by 2 (relative)"] : [`1/${10 ** page.decades} of the row's median`, `${10 ** page.decades} times`];
  const notFinite = element("span", undefined, "whole");
  notFinite.append(other, "NaN or inf");
  byId("legend").replaceChildren(element("span", ends[0]), bar, element("span", ends[1]), notFinite);
}
