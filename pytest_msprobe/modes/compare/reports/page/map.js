/* Modules by step and rank: what came worst of the calls of each, in the order in which modules first ran. */

// Levels of cells; those of what is wrong go on to 255, which is an error as large as the values.
const LEVEL = { skip: 1, pass: 2, warn: 3, fail: 4 }, LEAST_DECADE = -6;
let stepMap = null;

function drawMap() {
  if (stepMap) return;
  const modules = Map.groupBy(page.calls, ({ path }) => path), paths = [...modules.keys()];
  const cells = [...modules.values()].map((calls) => {
    const sums = page.pairs.map(summed);
    for (const call of calls) addCall(sums[call[CALL.pair]], call);
    return sums;
  });
  const levels = cells.map((sums) => Uint8Array.from(sums, levelOf));
  const textOf = ({ row, column }) => {
    const name = paths[row].replaceAll("/", "."), sum = cells[row][column];
    if (!sum?.calls) return name;
    const error = sum.error === null ? "" : `, greatest scaled error ${numberText(sum.error)}`;
    return `${name}, ${page.pairs[column]}: ${callsText(sum)}${error}`;
  };
  stepMap = new CellGrid(byId("map"), "Modules by step and rank; arrow keys move, Enter shows values", {
    rows: paths.length, columns: page.pairs.length, leastRow: 14, noun: "module", titleOf: (pair) => page.pairs[pair],
    isTall: true, levels: (row) => levels[row], colours: cellColours, nameOf: (row) => paths[row].replaceAll("/", "."),
    textOf, choose: (cell) => stepMap.goTo(cell), open: ({ row, column }) => showCell(paths[row], column ?? -1),
    marks: (pen) => {
      Object.assign(pen, { fillStyle: themeColour("fore"), textAlign: "center" });
      cells.forEach((sums, row) => sums.forEach(({ hasCulprit }, column) => {
        if (hasCulprit) pen.fillText("◆", ...stepMap.middle({ row, column }));
      }));
    },
  });
  const meaning = "by step and rank; darker red is a larger error, ◆ marks where a difference begins";
  const parts = [stepMap.buttons(), ` ${plural(paths.length, "module")} ${meaning}`];
  byId("map").prepend(element("p", parts, "controls soft"));
  stepMap.draw();
}

function levelOf({ calls, worst, error }) {
  if (!calls) return 0;
  const isUnknown = error === null || !Number.isFinite(error) || error >= 1;
  const size = isUnknown ? 1 : error > 0 ? Math.max(0, 1 - Math.log10(error) / LEAST_DECADE) : 0;
  return LEVEL[worst] + (worst === "fail" ? Math.round((255 - LEVEL.fail) * size) : 0);
}

function cellColours() {
  const mixed = (name, share) => `color-mix(in srgb, ${themeColour(name)} ${share}%, ${themeColour("back")})`;
  const wrong = Array.from({ length: 256 - LEVEL.fail }, (_, at) => mixed("fail", 30 + (70 * at) / (255 - LEVEL.fail)));
  return ["transparent", themeColour("line"), mixed("pass", 18), mixed("warn", 55), ...wrong];
}

function showCell(path, pair) {
  views.show("table-view");
  table.widen();
  showPair(pair);
  chooseNode(path);
  plot();
}
