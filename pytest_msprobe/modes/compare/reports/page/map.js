/* Modules by step and rank: what came worst of the calls of each, in the order in which modules first ran. */

const MOST_CELLS = 40000, LEAST_DECADE = -6;
let isMapMade = false;

function drawMap() {
  if (isMapMade) return;
  isMapMade = true;
  const depth = deepest(), modules = cellsByModule(depth);
  const meaning = "darker red is a larger error, \u25c6 marks where a difference begins";
  const below = depth < Infinity ? `; modules below level ${depth} are together` : "";
  const lines = [...modules].map(([path, cells]) => element("tr", [
    element("th", path.replaceAll("/", "."), "", { scope: "row" }),
    ...page.pairs.map((_, pair) => element("td", cells[pair] && cellOf(path, pair, cells[pair]))),
  ]));
  byId("map").append(element("table", [
    element("caption", `${modules.size} modules by step and rank; ${meaning}${below}`),
    element("thead", element("tr", ["module", ...page.pairs].map((name) => element("th", name)))),
    element("tbody", lines),
  ]));
}

// How many levels of modules are rows of their own, so that the page stays quick.
function deepest() {
  const levels = Math.max(...page.calls.map((call) => call.path.split("/").length));
  for (let depth = levels; depth > 1; depth--) {
    const rows = new Set(page.calls.map((call) => upTo(call.path, depth))).size;
    if (rows * page.pairs.length <= MOST_CELLS) return depth === levels ? Infinity : depth;
  }
  return 1;
}

function upTo(path, depth) {
  return depth === Infinity ? path : path.split("/").slice(0, depth).join("/");
}

function cellsByModule(depth) {
  const modules = new Map();
  for (const call of page.calls) {
    const path = upTo(call.path, depth);
    if (!modules.has(path)) modules.set(path, []);
    addCall((modules.get(path)[call[CALL.pair]] ??= summed()), call);
  }
  return modules;
}

function cellOf(path, pair, cell) {
  const error = cell.error === null ? "" : `, greatest scaled error ${numberText(cell.error)}`;
  const title = `${path.replaceAll("/", ".")}, ${page.pairs[pair]}: ${callsText(cell)}${error}`;
  const style = cell.worst === "fail" ? `--size: ${sizeOf(cell.error)}` : "";
  const made = button(cell.hasCulprit ? "\u25c6" : "", () => showCell(path, pair), cell.worst);
  return filled(made, [], { title, style, "aria-label": title });
}

// From 0 for an error of a millionth to 1 for one that is as large as the values.
function sizeOf(error) {
  if (error === null || !Number.isFinite(error) || error >= 1) return 1;
  return error > 0 ? Math.max(0, 1 - Math.log10(error) / LEAST_DECADE) : 0;
}

function showCell(path, pair) {
  views.show("table-view");
  table.widen();
  showPair(pair);
  chooseNode(path);
  plot();
}
