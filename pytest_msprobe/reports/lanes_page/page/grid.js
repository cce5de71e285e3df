/* The grid: a lane for each rank, a column for each call in order. Of calls that share a pixel the worst is seen. */

const LEAST_LANE = 14, MOST_LANE = 34, MOST_LABEL = 190, GRID_TOP = 18, MOST_LINES = 400;
const GRID_COLOURS = ["line", "skip", "pass", "warn", "fail", "fail", "fail"];
const grid = { from: 0, to: columnCount, left: MOST_LABEL, width: 0, lane: MOST_LANE };

const wrongJoins = page.joins.filter((join) => join.length > 1 && join.some((call) => severity(call) >= MISSING));

function drawGrid() {
  const canvas = byId("grid"), ratio = window.devicePixelRatio || 1, room = byId("lanes").clientWidth;
  if (!room) return;
  grid.lane = Math.max(LEAST_LANE, Math.min(MOST_LANE, (byId("lanes").clientHeight - GRID_TOP - 6) / page.lanes.length));
  const height = GRID_TOP + page.lanes.length * grid.lane + 4;
  grid.left = Math.min(MOST_LABEL, room * 0.35);
  grid.width = room - grid.left - 6;
  Object.assign(canvas, { width: room * ratio, height: height * ratio });
  Object.assign(canvas.style, { width: `${room}px`, height: `${height}px` });
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(`--${name}`).trim();
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  drawCells(pen, GRID_COLOURS.map((name, level) => (level === MISSING || level === SEVERITY.partner ? hatched(pen, colour(name), level === MISSING) : colour(name))));
  drawLines(pen, colour);
  drawLabels(pen, colour);
  drawMarks(pen, colour);
}

/* Lines of a colour: few for what is missing, many for a partner. */
function hatched(pen, colour, isMissing) {
  const tile = element("canvas"), size = tile.width = tile.height = isMissing ? 8 : 4, own = tile.getContext("2d");
  own.strokeStyle = colour;
  own.lineWidth = 1.4;
  for (const at of [-size, 0, size]) {
    own.moveTo(at, size);
    own.lineTo(at + size, 0);
  }
  own.stroke();
  return pen.createPattern(tile, "repeat");
}

const columnX = (column) => grid.left + (grid.width * (column - grid.from)) / (grid.to - grid.from);
const laneY = (lane) => GRID_TOP + lane * grid.lane;

function drawCells(pen, colours) {
  const shown = grid.to - grid.from, wide = Math.min(shown, Math.floor(grid.width));
  for (let lane = 0; lane < page.lanes.length; lane++) {
    for (let x = 0; x < wide; x++) {
      const first = grid.from + Math.floor((shown * x) / wide), last = Math.max(first + 1, grid.from + Math.floor((shown * (x + 1)) / wide));
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
function drawLines(pen, colour) {
  const chosen = table.chosen(), own = joinsOf.get(chosen);
  for (const join of wrongJoins.slice(0, MOST_LINES)) strokeJoin(pen, join, colour("fail"), 1);
  if (own) strokeJoin(pen, own, colour("link"), 2);
  for (const [from, to] of page.arrows.slice(0, MOST_LINES)) strokeArrow(pen, from, to, colour("fail"));
}

function middle(call) {
  return [columnX(columnOf[call] + 0.5), laneY(laneOf[call]) + grid.lane / 2];
}

function isSeen(call) {
  return columnOf[call] >= grid.from && columnOf[call] < grid.to;
}

function strokeJoin(pen, join, colour, width) {
  const seen = join.filter(isSeen).map(middle).sort((a, b) => a[1] - b[1]);
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.beginPath();
  seen.forEach(([x, y], place) => (place ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.stroke();
  pen.lineWidth = 1;
}

function strokeArrow(pen, from, to, colour) {
  if (!isSeen(from) && !isSeen(to)) return;
  const [x0, y0] = middle(from), [x1, y1] = middle(to), angle = Math.atan2(y1 - y0, x1 - x0);
  pen.strokeStyle = pen.fillStyle = colour;
  pen.beginPath();
  pen.moveTo(Math.max(grid.left, x0), y0);
  pen.lineTo(x1, y1);
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x1, y1);
  for (const turn of [-0.4, 0.4]) pen.lineTo(x1 - 8 * Math.cos(angle + turn), y1 - 8 * Math.sin(angle + turn));
  pen.fill();
}

function drawLabels(pen, colour) {
  pen.textBaseline = "middle";
  pen.fillStyle = colour("back");
  pen.fillRect(0, 0, grid.left - 2, laneY(page.lanes.length));
  pen.fillStyle = colour("fore");
  page.lanes.forEach((name, lane) => pen.fillText(fitted(pen, name, grid.left - 12), 4, laneY(lane) + grid.lane / 2));
  pen.fillStyle = colour("soft");
  const every = Math.max(1, niceStep((grid.to - grid.from) / Math.max(1, grid.width / 70)));
  pen.textAlign = "center";
  for (let column = Math.ceil(grid.from / every) * every; column < grid.to; column += every) pen.fillText(column, Math.min(columnX(column + 0.5), grid.left + grid.width - 12), GRID_TOP / 2);
  pen.textAlign = "left";
  pen.fillText("call", 4, GRID_TOP / 2);
}

function drawMarks(pen, colour) {
  pen.fillStyle = colour("fail");
  for (const call of page.begins.filter(isSeen)) {
    const [x] = middle(call), y = laneY(laneOf[call]);
    pen.beginPath();
    pen.moveTo(x - 6, y - 6);
    pen.lineTo(x + 6, y - 6);
    pen.lineTo(x, y + 3);
    pen.fill();
  }
  const chosen = table.chosen();
  if (chosen === null || !isSeen(chosen)) return;
  const x = columnX(columnOf[chosen]), wide = Math.max(8, columnX(columnOf[chosen] + 1) - x);
  pen.strokeStyle = colour("fore");
  pen.lineWidth = 2;
  pen.strokeRect((x + columnX(columnOf[chosen] + 1) - wide) / 2, laneY(laneOf[chosen]) + 2, wide, grid.lane - 4);
  pen.lineWidth = 1;
}

/* What is under the pointer; of several calls on one pixel the worst. */
function callUnder(event) {
  const box = byId("grid").getBoundingClientRect(), x = event.clientX - box.left, lane = Math.floor((event.clientY - box.top - GRID_TOP) / grid.lane);
  if (lane < 0 || lane >= page.lanes.length || x < grid.left) return -1;
  const each = (grid.to - grid.from) / grid.width, at = grid.from + (x - grid.left) * each;
  let found = -1;
  for (let column = Math.floor(at); column < Math.min(grid.to, Math.max(at + each, Math.floor(at) + 1)); column++) {
    const call = callAt[lane * columnCount + column];
    if (call >= 0 && (found < 0 || severity(call) > severity(found))) found = call;
  }
  return found;
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

function onGrid() {
  const canvas = byId("grid"), tip = byId("tip");
  let pressed = null;
  canvas.addEventListener("mousemove", (event) => {
    const call = callUnder(event);
    tip.hidden = call < 0;
    if (call < 0) return;
    tip.textContent = sentenceOf(call);
    const box = byId("grid-box").getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX - box.left + 12, box.width * 0.6)}px`;
    tip.style.top = `${event.clientY - box.top + 14}px`;
  });
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
  canvas.addEventListener("mousedown", (event) => { pressed = columnUnder(event); });
  canvas.addEventListener("mouseup", (event) => {
    const column = columnUnder(event), call = callUnder(event);
    if (pressed !== null && Math.abs(column - pressed) > (grid.to - grid.from) / 40 + 1) {
      [grid.from, grid.to] = [Math.max(0, Math.floor(Math.min(column, pressed))), Math.min(columnCount, Math.ceil(Math.max(column, pressed)) + 1)];
      drawGrid();
    } else if (call >= 0) table.goTo(call);
    pressed = null;
  });
  canvas.addEventListener("dblclick", () => zoomGrid(Infinity));
  onKeys(canvas, keysOnGrid);
}

function columnUnder(event) {
  const x = event.clientX - byId("grid").getBoundingClientRect().left;
  return grid.from + ((x - grid.left) / grid.width) * (grid.to - grid.from);
}

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
