/* The grid: a lane for each rank, a column for each call in order. */

const MOST_LINES = 400;

const wrongJoins = page.joins.filter((join) => join.length > 1 && join.some((call) => severity(call) >= MISSING));
const lanes = page.lanes.map((_, lane) => Uint8Array.from({ length: columnCount }, (_, column) => {
  const call = callAt[lane * columnCount + column];
  return call < 0 ? 0 : severity(call);
}));
const callIn = ({ row, column }) => (column === null ? -1 : callAt[row * columnCount + column]);
const placeOf = (call) => ({ row: laneOf[call], column: columnOf[call] });

const grid = new CellGrid(byId("grid-box"), "A lane for each rank; arrow keys move, n and p go to failures", {
  rows: page.lanes.length, columns: columnCount, leastRow: 14, noun: "call", titleOf: String,
  levels: (lane) => lanes[lane], colours: cellColours,
  // Few lines for what is missing, many for a partner.
  hatched: { [MISSING]: 8, [severityAs("partner")]: 4 },
  nameOf: (lane) => page.lanes[lane], marks: drawLines,
  textOf: (cell) => (callIn(cell) < 0 ? page.lanes[cell.row] : sentenceOf(callIn(cell))),
  choose: (cell) => (callIn(cell) < 0 ? grid.goTo(cell) : table.goTo(callIn(cell))),
  keys: () => ({ n: () => nextWrong(1), p: () => nextWrong(-1), Enter: () => byId("details").focus() }),
});

// By severity.
function cellColours() {
  const [line, skip, pass, warn, fail] = ["line", "skip", "pass", "warn", "fail"].map(themeColour);
  return ["transparent", line, skip, `color-mix(in srgb, ${pass} 45%, transparent)`, warn, fail, fail, fail];
}

/* Lines between calls that belong together: of those that are wrong, and of the chosen one; and where it begins. */
function drawLines(pen) {
  const fail = themeColour("fail"), middle = (call) => grid.middle(placeOf(call));
  const join = (calls, colour, width) => {
    strokeThrough(pen, calls.map(middle).sort((a, b) => a[1] - b[1]), colour, [], width);
  };
  for (const calls of wrongJoins.slice(0, MOST_LINES)) join(calls, fail, 1);
  join(joinsOf.get(table.chosen()) ?? [], themeColour("link"), 2);
  for (const [from, to] of page.arrows.slice(0, MOST_LINES)) strokeArrow(pen, middle(from), middle(to), fail);
  for (const call of page.begins) {
    const [x, y] = middle(call);
    pointDown(pen, x, y, Math.min(8, grid.row / 2), themeColour("fore"));
  }
}

function strokeArrow(pen, [x0, y0], [x1, y1], colour) {
  const angle = Math.atan2(y1 - y0, x1 - x0);
  const back = (turn) => [x1 - 8 * Math.cos(angle + turn), y1 - 8 * Math.sin(angle + turn)];
  strokeThrough(pen, [[x0, y0], [x1, y1]], colour);
  fillShape(pen, [[x1, y1], back(-0.4), back(0.4)], colour);
}
