/* The grid: a lane for each rank, a column for each call in order. Of calls that share a pixel the worst is seen. */

const LEAST_LANE = 14, MOST_LANE = 34, MOST_LABEL = 190, GRID_TOP = 18, MOST_LINES = 400;
const GRID_COLOURS = ["line", "skip", "pass", "warn", "fail", "fail", "fail"];
const grid = { from: 0, to: columnCount, left: MOST_LABEL, width: 0, lane: MOST_LANE };

const wrongJoins = page.joins.filter((join) => join.length > 1 && join.some((call) => severity(call) >= MISSING));

function drawGrid() {
  const room = byId("lanes").clientWidth;
  if (!room) return;
  grid.lane = Math.max(LEAST_LANE, Math.min(MOST_LANE, (byId("lanes").clientHeight - GRID_TOP - 6) / page.lanes.length));
  grid.left = Math.min(MOST_LABEL, room * 0.35);
  grid.width = room - grid.left - 6;
  const pen = sharpPen(byId("grid"), room, GRID_TOP + page.lanes.length * grid.lane + 4), fail = themeColour("fail");
  const looks = { [MISSING]: hatched(pen, fail, true), [SEVERITY.partner]: hatched(pen, fail, false) };
  drawCells(pen, GRID_COLOURS.map((name, level) => looks[level] ?? themeColour(name)));
  drawLines(pen, fail);
  drawLabels(pen);
  drawMarks(pen, fail);
}

/* Lines of a colour: few for what is missing, many for a partner. */
function hatched(pen, colour, isMissing) {
  const size = isMissing ? 8 : 4, tile = new OffscreenCanvas(size, size), own = tile.getContext("2d");
  for (const at of [-size, 0, size]) strokeThrough(own, [[at, size], [at + size, 0]], colour, [], 1.4);
  return pen.createPattern(tile, "repeat");
}

const columnX = (column) => grid.left + (grid.width * (column - grid.from)) / (grid.to - grid.from);
const laneY = (lane) => GRID_TOP + lane * grid.lane;

function drawCells(pen, colours) {
  const shown = grid.to - grid.from, wide = Math.min(shown, Math.floor(grid.width));
  const columnAt = (x) => grid.from + Math.floor((shown * x) / wide);
  for (let lane = 0; lane < page.lanes.length; lane++) {
    for (let x = 0; x < wide; x++) {
      const first = columnAt(x), last = Math.max(first + 1, columnAt(x + 1));
      let worst = -1;
      for (let column = first; column < last; column++) {
        const call = callAt[lane * columnCount + column];
        if (call >= 0) worst = Math.max(worst, severity(call));
      }
      if (worst < 0) continue;
      const left = grid.left + (grid.width * x) / wide, size = grid.width / wide;
      pen.fillStyle = colours[worst];
      pen.globalAlpha = worst === 2 ? 0.45 : 1;
      const box = [left, laneY(lane) + 3, Math.max(1, size - (size > 4 ? 1 : 0)), grid.lane - 6];
      pen.fillRect(...box);
      if (worst !== MISSING || size < 6) continue;
      pen.strokeStyle = colours[SEVERITY.fail];
      pen.strokeRect(box[0] + 0.5, box[1] + 0.5, box[2] - 1, box[3] - 1);
    }
  }
  pen.globalAlpha = 1;
}

/* Lines between calls that belong together: of those that are wrong, and of the chosen one. */
function drawLines(pen, fail) {
  const join = (calls, colour, width) => {
    strokeThrough(pen, calls.filter(isSeen).map(middle).sort((a, b) => a[1] - b[1]), colour, [], width);
  };
  for (const calls of wrongJoins.slice(0, MOST_LINES)) join(calls, fail, 1);
  join(joinsOf.get(table.chosen()) ?? [], themeColour("link"), 2);
  for (const [from, to] of page.arrows.slice(0, MOST_LINES)) strokeArrow(pen, from, to, fail);
}

function middle(call) {
  return [columnX(columnOf[call] + 0.5), laneY(laneOf[call]) + grid.lane / 2];
}

function isSeen(call) {
  return columnOf[call] >= grid.from && columnOf[call] < grid.to;
}

function strokeArrow(pen, from, to, colour) {
  if (!isSeen(from) && !isSeen(to)) return;
  const [x0, y0] = middle(from), [x1, y1] = middle(to), angle = Math.atan2(y1 - y0, x1 - x0);
  const back = (turn) => [x1 - 8 * Math.cos(angle + turn), y1 - 8 * Math.sin(angle + turn)];
  strokeThrough(pen, [[Math.max(grid.left, x0), y0], [x1, y1]], colour);
  fillShape(pen, [[x1, y1], back(-0.4), back(0.4)], colour);
}

function drawLabels(pen) {
  pen.textBaseline = "middle";
  pen.fillStyle = themeColour("back");
  pen.fillRect(0, 0, grid.left - 2, laneY(page.lanes.length));
  pen.fillStyle = themeColour("fore");
  page.lanes.forEach((name, lane) => pen.fillText(fitted(pen, name, grid.left - 12), 4, laneY(lane) + grid.lane / 2));
  pen.fillStyle = themeColour("soft");
  pen.fillText("call", 4, GRID_TOP / 2);
  pen.textAlign = "center";
  const every = niceStep((grid.to - grid.from) / Math.max(1, grid.width / 70)), last = grid.left + grid.width - 12;
  for (let column = Math.ceil(grid.from / every) * every; column < grid.to; column += every) {
    pen.fillText(column, Math.min(columnX(column + 0.5), last), GRID_TOP / 2);
  }
}

function drawMarks(pen, fail) {
  for (const call of page.begins.filter(isSeen)) pointDown(pen, middle(call)[0], laneY(laneOf[call]) + 3, 8, fail);
  const chosen = table.chosen();
  if (chosen === null || !isSeen(chosen)) return;
  const [x] = middle(chosen), wide = Math.max(8, columnX(1) - columnX(0));
  Object.assign(pen, { strokeStyle: themeColour("fore"), lineWidth: 2 });
  pen.strokeRect(x - wide / 2, laneY(laneOf[chosen]) + 2, wide, grid.lane - 4);
}

/* What is under the pointer: the column, and of several calls on one pixel the worst; null outside of the lanes. */
function cellAt(event) {
  const { left, top } = byId("grid").getBoundingClientRect();
  const lane = Math.floor((event.clientY - top - GRID_TOP) / grid.lane);
  const each = (grid.to - grid.from) / grid.width, at = grid.from + (event.clientX - left - grid.left) * each;
  if (lane < 0 || lane >= page.lanes.length || at < grid.from) return null;
  const last = Math.min(grid.to, Math.max(at + each, Math.floor(at) + 1)), under = [];
  for (let column = Math.floor(at); column < last; column++) under.push(callAt[lane * columnCount + column]);
  const [call] = under.filter((one) => one >= 0).sort((a, b) => severity(b) - severity(a));
  return { at, call };
}

function zoomGrid(by, around = (grid.from + grid.to) / 2) {
  const size = Math.max(8, Math.min(columnCount, Math.round((grid.to - grid.from) * by)));
  grid.from = Math.max(0, Math.min(columnCount - size, Math.round(around - size / 2)));
  grid.to = Math.min(columnCount, grid.from + size);
  drawGrid();
}

function bringIntoGrid(call) {
  if (!isSeen(call)) zoomGrid(1, columnOf[call]);
}

onCells(byId("grid"), byId("grid-box"), {
  cellAt, tipOf: ({ call }) => (call === undefined ? "" : sentenceOf(call)),
  choose: ({ call }) => { if (call !== undefined) table.goTo(call); },
  isDrag: (one, other) => Math.abs(one.at - other.at) > (grid.to - grid.from) / 40 + 1,
  zoom: (one, other) => {
    grid.from = Math.max(0, Math.floor(Math.min(one.at, other.at)));
    grid.to = Math.min(columnCount, Math.ceil(Math.max(one.at, other.at)) + 1);
    drawGrid();
  },
});
byId("grid").addEventListener("dblclick", () => zoomGrid(Infinity));
onKeys(byId("grid"), keysOnGrid);

function keysOnGrid() {
  const chosen = table.chosen() ?? 0;
  return {
    ...Object.fromEntries(Object.entries(ARROWS).map(([key, move]) => [key, () => step(chosen, ...move)])),
    "+": () => zoomGrid(0.5, columnOf[chosen]), "-": () => zoomGrid(2), 0: () => zoomGrid(Infinity),
    n: () => nextWrong(1), p: () => nextWrong(-1), Enter: () => byId("details").focus(),
  };
}

/* Go to the next call of the lane, or to that of another lane in the same column or before it. */
function step(call, lanes, columns) {
  const lane = Math.max(0, Math.min(page.lanes.length - 1, laneOf[call] + lanes));
  for (let column = columnOf[call] + columns; column >= 0 && column < columnCount; column += columns || -1) {
    const found = callAt[lane * columnCount + column];
    if (found >= 0) return table.goTo(found);
  }
}
