/* Modules by step and rank: what came worst of the calls of each, in the order in which modules first ran. */

const MOST_CELLS = 40000, LEAST_DECADE = -6;
let isMapMade = false;

function drawMap() {
  if (isMapMade) return;
  isMapMade = true;
  const depth = deepest(), modules = cellsByModule(depth);
  const table = element("table"), head = element("tr");
  table.append(element("caption", `${modules.size} modules by step and rank; darker red is a larger error, \u25c6 marks where a difference begins${depth < Infinity ? `; modules below level ${depth} are together` : ""}`));
  head.append(element("th", "module"), ...page.pairs.map((name) => element("th", name)));
  const top = element("thead"), body = element("tbody");
  top.append(head);
  for (const [path, cells] of modules) {
    const line = element("tr"), name = element("th", path.replaceAll("/", "."));
    name.scope = "row";
    line.append(name, ...page.pairs.map((_, pair) => cellOf(path, pair, cells[pair])));
    body.append(line);
  }
  table.append(top, body);
  byId("map").replaceChildren(table);
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
    const cell = (modules.get(path)[call[CALL.pair]] ??= { worst: "skip", calls: 0, wrong: 0, error: null, hasCulprit: false });
    cell.calls++;
    if (call[CALL.outcome] === "fail") cell.wrong++;
    if (call[CALL.cause] === "culprit") cell.hasCulprit = true;
    if (SEVERITY[call[CALL.outcome]] > SEVERITY[cell.worst]) cell.worst = call[CALL.outcome];
    const error = asNumber(call[CALL.error]);
    if (error !== null && !(error <= cell.error)) cell.error = error;
  }
  return modules;
}

function cellOf(path, pair, cell) {
  const made = element("td");
  if (!cell) return made;
  const button = element("button", cell.hasCulprit ? "\u25c6" : "", cell.worst);
  const error = cell.error === null ? "" : `, greatest scaled error ${numberText(cell.error)}`;
  const calls = cell.wrong ? `${cell.wrong} of ${cell.calls} calls wrong` : `${cell.calls} ${cell.calls === 1 ? "call" : "calls"} ${OUTCOME_WORDS[cell.worst]}`;
  button.title = `${path.replaceAll("/", ".")}, ${page.pairs[pair]}: ${calls}${error}`;
  button.setAttribute("aria-label", button.title);
  if (cell.worst === "fail") button.style.setProperty("--size", sizeOf(cell.error));
  button.addEventListener("click", () => showCell(path, pair));
  made.append(button);
  return made;
}

// From 0 for an error of a millionth to 1 for one that is as large as the values.
function sizeOf(error) {
  if (error === null || !Number.isFinite(error) || error >= 1) return 1;
  return error > 0 ? Math.max(0, 1 - Math.log10(error) / LEAST_DECADE) : 0;
}

function showCell(path, pair) {
  views.show("table-view");
  clearFilters();
  byId("pair").value = String(pair);
  Object.assign(state, { pair, node: path });
  byId("tree").querySelectorAll(".chosen").forEach((one) => one.classList.remove("chosen"));
  refresh();
  plot();
}
