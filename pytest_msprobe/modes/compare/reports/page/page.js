const OUTCOMES = ["fail", "warn", "pass", "skip"];
const SEVERITY = { skip: 0, pass: 1, warn: 2, fail: 3 };
const OUTCOME_WORDS = { fail: "wrong", warn: "warned", pass: "equal enough", skip: "not compared" };

// A row: [call, name, dtype, shape, outcome, cause, messages, metrics, target statistics, golden statistics, worst index, histogram]
const ROW = { call: 0, name: 1, dtype: 2, shape: 3, outcome: 4, cause: 5, messages: 6, metrics: 7, target: 8, golden: 9, worst: 10, histogram: 11 };
// A call: [record, golden, pair, order, outcome, cause, reason, module, stack, error]
const CALL = { record: 0, golden: 1, pair: 2, order: 3, outcome: 4, cause: 5, reason: 6, module: 7, stack: 8, error: 9 };

// How many chips of first culprits are shown.
const MOST_CULPRITS = 8;
// A place of a pair of dumps: [step, rank, dump]; step and rank may be null.
const PLACE = { step: 0, rank: 1, dump: 2 };
const placeOfPair = (row) => page.places[page.calls[row[ROW.call]][CALL.pair]];

const metricColumn = (title, place) => ({ title, width: 120, number: true, of: (row) => row[ROW.metrics][place] });
const columns = [
  { title: "Result", width: 66, of: (row) => row[ROW.outcome], by: (row) => SEVERITY[row[ROW.outcome]], look: (row) => row[ROW.outcome] },
  ...["Step", "Rank"].filter((_, at) => new Set(page.places.map((place) => place[at])).size > 1).map((title) => ({
    title, width: 44, number: true, of: (row) => placeOfPair(row)[title === "Step" ? PLACE.step : PLACE.rank],
  })),
  { title: "Value", width: 220, narrow: 130, name: true, of: (row) => row[ROW.name] },
  ...page.metrics.slice(0, 1).map(metricColumn),
  { title: "Message", width: 260, grow: true, of: (row) => row[ROW.messages] },
  { title: "Cause", width: 80, of: (row) => row[ROW.cause] },
  { title: "Dtype", width: 130, of: (row) => row[ROW.dtype] },
  { title: "Shape", width: 130, of: (row) => row[ROW.shape] },
  ...page.metrics.slice(1).map((title, place) => metricColumn(title, place + 1)),
  { title: "#", width: 64, narrow: 40, number: true, of: (row) => page.calls[row[ROW.call]][CALL.order] },
];
const hasCulprits = page.calls.some((call) => call[CALL.cause] === "culprit");
const state = { shown: new Set(OUTCOMES), pair: -1, words: [], node: null };
const table = makeTable(byId("scroller"), columns, { open: describe, label: "Values", name: "values", look: (row) => row[ROW.cause] });

/* Which rows are shown, and in which order. */

function refresh() {
  const visible = page.rows.filter((row) => {
    const call = page.calls[row[ROW.call]];
    if (!state.shown.has(row[ROW.outcome]) || (state.pair >= 0 && call[CALL.pair] !== state.pair)) return false;
    if (state.node && !(call.path + "/").startsWith(state.node + "/")) return false;
    return !state.words.length || matches(row, call);
  });
  const inside = state.node ? ` in ${state.node.replaceAll("/", ".")}` : "";
  byId("count").textContent = `${visible.length} of ${page.rows.length} values${inside}`;
  byId("scroller").scrollTop = 0;
  table.show(visible);
}

function matches(row, call) {
  row.text ??= [row[ROW.name], row[ROW.dtype], row[ROW.shape], row[ROW.messages], row[ROW.cause], call[CALL.golden], call[CALL.module]].join(" ").toLowerCase();
  return state.words.every((word) => row.text.includes(word));
}

/* One row in full. */

function describe(row) {
  const box = byId("details");
  box.replaceChildren(...(row === null ? [element("p", "Choose a value of the table, a point of the plot or a module.", "soft")] : sheetOf(row)));
  box.scrollTop = 0;
  if (row !== null) openPane("details-box");
  setFragment(row === null ? "" : fragmentOf(row));
  table.draw();
  plot();
}

function sheetOf(row) {
  const call = page.calls[row[ROW.call]], ways = element("p");
  if (inGraphs.has(row[ROW.call])) {
    const button = element("button", "show in the graph");
    button.addEventListener("click", () => showInGraph(row[ROW.call]));
    ways.append(button, " ");
  }
  ways.append(linkButton(fragmentOf(row)));
  const parts = [brokenAtDots(element("h2"), row[ROW.name]), ways, ...wrongValues(row[ROW.call]), ...commandsOf(call), factsOf(row, call)];
  for (const text of [row[ROW.messages], call[CALL.reason]]) if (text) parts.push(element("pre", text));
  if (row[ROW.histogram].length) parts.push(element("h3", "Elements by relative error"), histogram(row[ROW.histogram]));
  if (call[CALL.stack] >= 0) parts.push(element("h3", "Called at"), element("pre", page.stacks[call[CALL.stack]]));
  return parts;
}

function commandsOf(call) {
  return nextSteps({ dump: page.places[call[CALL.pair]][PLACE.dump], record: call[CALL.record] });
}

function factsOf(row, call) {
  const pairs = ["max", "min", "mean", "norm"].map((title, at) => {
    const [target, golden] = [row[ROW.target], row[ROW.golden]].map((one) => (one ? numberText(asNumber(one[at])) : ""));
    return [title, target !== "" || golden !== "" ? `${target} against ${golden}` : ""];
  });
  return factsList([
    ["where", page.pairs.length > 1 ? page.pairs[call[CALL.pair]] : ""],
    ["result", row[ROW.outcome] + (row[ROW.cause] ? `, ${row[ROW.cause]}` : "")],
    ["golden call", call[CALL.golden] ?? "none"],
    ["module", call[CALL.module]],
    ["dtype", row[ROW.dtype]],
    ["shape", row[ROW.shape]],
    ["worst element", row[ROW.worst]],
    ...page.metrics.map((title, at) => [title, numberText(row[ROW.metrics][at])]),
    ...pairs,
  ]);
}

/* Every wrong value of a call, what it was given before what it returned: there a cause is. */
function wrongValues(number) {
  const call = page.calls[number], isOutput = (row) => placeOf(row, call).startsWith("output");
  const wrong = (rowsOfCalls.get(number) ?? []).filter((row) => row[ROW.outcome] === "fail").sort((a, b) => isOutput(a) - isOutput(b));
  if (!wrong.length) return [];
  const list = element("ul", undefined, "wrong-values");
  for (const row of wrong) {
    const item = element("li"), button = element("button", placeOf(row, call));
    button.addEventListener("click", () => goToRow(row));
    item.append(button, `: ${row[ROW.messages].split("\n")[0] || row[ROW.outcome]}`);
    list.append(item);
  }
  return [element("h3", `${plural(wrong.length, "wrong value")} of this call`), list];
}

/* A name that a line may break after its dots and slashes alone. */
function brokenAtDots(box, name) {
  for (const part of name.split(/(?<=[./])/)) box.append(part, element("wbr"));
  return box;
}

function fragmentOf(row) {
  const pair = page.calls[row[ROW.call]][CALL.pair];
  return pair ? `${row[ROW.name]}::${page.pairs[pair]}` : row[ROW.name];
}

function linkedRow(fragment) {
  return fragment && page.rows.find((row) => fragment.startsWith(row[ROW.name]) && fragmentOf(row) === fragment);
}

/* Show a row, in the table of which filters may hide it. */
function goToRow(row) {
  if (!table.rows().includes(row)) clearFilters();
  show(row);
}

/* Of the table's keys, n and p go from culprit to culprit. */
function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = table.rows(), at = rows.indexOf(table.chosen()), isCulprit = (row) => row[ROW.cause] === "culprit";
  const to = { n: () => rows.find((row, where) => where > at && isCulprit(row)), p: () => rows.findLast((row, where) => where < at && isCulprit(row)) }[event.key]?.();
  if (to === undefined) return;
  event.preventDefault();
  show(to);
}

/* Choose a row and bring it into sight. */
function show(row) {
  table.scrollTo(row);
  table.choose(row);
}

function histogram(counts) {
  const chart = svg("svg", { viewBox: `0 0 ${counts.length * 20} 100`, preserveAspectRatio: "none" });
  const top = Math.log10(1 + Math.max(...counts));
  counts.forEach((count, place) => {
    const height = top ? (80 * Math.log10(1 + count)) / top : 0;
    const bar = svg("rect", { x: place * 20 + 2, y: 85 - height, width: 16, height });
    bar.append(svg("title", {}, `${page.bins[place]}: ${count}`));
    chart.append(bar, svg("text", { x: place * 20 + 10, y: 96 }, page.bins[place]));
  });
  return chart;
}

/* Modules, each with the worst that came of what ran in it; those with a culprit are marked and open. */

function treeNode() {
  return { children: new Map(), worst: "skip", calls: 0, wrong: 0, hasCulprit: false };
}

function tree() {
  const root = treeNode();
  for (const call of page.calls) {
    let node = root;
    for (const part of call.path.split("/")) {
      if (!node.children.has(part)) node.children.set(part, treeNode());
      node = node.children.get(part);
      node.calls++;
      if (call[CALL.outcome] === "fail") node.wrong++;
      if (call[CALL.cause] === "culprit") node.hasCulprit = true;
      if (SEVERITY[call[CALL.outcome]] > SEVERITY[node.worst]) node.worst = call[CALL.outcome];
    }
  }
  const all = element("button", "everything", "leaf everything chosen");
  all.addEventListener("click", () => chooseNode(null, all));
  byId("tree").replaceChildren(all, ...branches(root, ""));
}

function branches(node, path) {
  return [...node.children].map(([name, child]) => {
    const at = path ? `${path}/${name}` : name;
    const text = element("span", `${name} (${child.wrong ? `${child.wrong} of ` : ""}${child.calls})`), dot = element("span", undefined, `dot ${child.worst}`);
    dot.classList.toggle("culprit", child.hasCulprit);
    dot.title = child.hasCulprit ? "a difference begins here" : OUTCOME_WORDS[child.worst];
    text.title = child.wrong ? `${child.wrong} of ${plural(child.calls, "call")} wrong` : `${plural(child.calls, "call")} ${OUTCOME_WORDS[child.worst]}`;
    if (!child.children.size) {
      const leaf = element("button", undefined, "leaf");
      leaf.append(dot, text);
      leaf.addEventListener("click", () => chooseNode(at, leaf));
      return leaf;
    }
    const made = element("details"), head = element("summary");
    head.append(dot, text);
    text.addEventListener("click", (event) => { event.preventDefault(); chooseNode(at, head); });
    head.addEventListener("keydown", (event) => pressModule(event, made, () => chooseNode(at, head)));
    made.append(head);
    made.addEventListener("toggle", () => { if (made.open && made.childElementCount === 1) made.append(...branches(child, at)); });
    made.open = child.hasCulprit || (!hasCulprits && child.worst === "fail" && path.split("/").length < 3);
    return made;
  });
}

function chooseNode(path, at) {
  byId("tree").querySelectorAll(".chosen").forEach((one) => one.classList.remove("chosen"));
  at.classList.add("chosen");
  state.node = path;
  refresh();
}

/* The error of every call along execution order. */

let errors = null;

function plot() {
  errors ??= new LogPlot(byId("plot"), byId("tip"), {
    titles: { x: "call, in execution order", y: "scaled error" },
    limits: page.limits.map(([dtype, limit]) => ({ value: limit, text: `fails above ${limit} in ${dtype}`, outcome: "fail" })),
    choose: (point) => lookAt(point.call),
  });
  if (byId("table-view").hidden) return;
  const points = page.calls.filter((call) => state.pair < 0 || call[CALL.pair] === state.pair).map(asPoint);
  const chosen = table.chosen() && page.calls[table.chosen()[ROW.call]];
  errors.draw(points, points.find((point) => point.call === chosen));
}

function asPoint(call) {
  const cause = call[CALL.cause] && ` (${call[CALL.cause]})`;
  return { value: asNumber(call[CALL.error]), outcome: call[CALL.outcome], isMarked: call[CALL.cause] === "culprit", label: call[CALL.record] + cause, call };
}

function legend() {
  const met = OUTCOMES.filter((outcome) => page.calls.some((call) => call[CALL.outcome] === outcome));
  byId("plot-box").append(plotLegend([
    ...(hasCulprits ? [["marked", "a difference begins here"]] : []),
    ...met.map((outcome) => [outcome, OUTCOME_WORDS[outcome]]),
    ...(page.limits.length ? [["limit", "limit"]] : []),
  ]));
}

/* Show a call in the table, at the worst of its values; filters that hide it are taken back. */
function goTo(call) {
  const number = page.calls.indexOf(call), isOfCall = (row) => row[ROW.call] === number;
  if (!table.rows().some(isOfCall)) clearFilters();
  const worst = table.rows().filter(isOfCall).reduce((a, b) => (a === undefined || severity(b) > severity(a) ? b : a), undefined);
  if (worst !== undefined) show(worst);
}

function severity(row) {
  return 2 * SEVERITY[row[ROW.outcome]] + row[ROW.name].includes(".output.");
}

/* Of a focused module Enter shows what ran in it; the space bar and arrows open and close it. */
function pressModule(event, details, choose) {
  if (event.key === "Enter") choose();
  else if (event.key === "ArrowRight" || event.key === "ArrowLeft") details.open = event.key === "ArrowRight";
  else return;
  event.preventDefault();
}

function clearFilters() {
  byId("search").value = "";
  byId("pair").value = "-1";
  Object.assign(state, { words: [], pair: -1 });
  state.showAll();
  chooseNode(null, byId("tree").querySelector(".everything"));
  plot();
}

/* The page. */

function modulePath(call) {
  // Module.block.fc.Linear.forward.0 is block/fc; what has no module is grouped by the type of its API, and a value of
  // training against inference, which is of no call, by its own name.
  const name = call[CALL.module] || (/^(Module|Cell)\./.test(call[CALL.record]) ? call[CALL.record] : "");
  const parts = name.split(".");
  const end = parts.findIndex((part, place) => place > 1 && /^(forward|backward|parameters_grad)$/.test(part));
  if (!name && page.tokens) return call[CALL.record].replaceAll(".", "/");
  if (!/^(Module|Cell)$/.test(parts[0]) || end < 0) return name ? name.replaceAll(".", "/") : `outside of modules/${call[CALL.record].split(".")[0]}`;
  return parts.slice(1, end - 1).join("/") || parts[1];
}

/* How many values differ, and where the first of them is. */
function answer(first) {
  const count = (outcome) => page.rows.filter((row) => row[ROW.outcome] === outcome).length, wrong = count("fail"), warned = count("warn");
  const all = `${grouped(page.rows.length)} ${page.rows.length === 1 ? "value" : "values"}`;
  if (!first) return page.rows.every((row) => row[ROW.outcome] === "skip") ? "nothing was compared" : `none of ${all} differs`;
  const found = wrong ? `${grouped(wrong)} of ${all} ${wrong === 1 ? "differs" : "differ"}` : `none of ${all} is wrong, ${grouped(warned)} ${warned === 1 ? "is" : "are"} warned of`;
  return `${found}, first ${page.pairs.length > 1 ? `at ${page.pairs[first[CALL.pair]]}` : `in ${first[CALL.record]}`}`;
}

/* The first culprits: of several pairs of dumps that of each rank, of one pair the first three. */
function culpritButtons(culprits) {
  const several = page.pairs.length > 1, placeOf = (call) => page.places[call[CALL.pair]];
  const firsts = several ? [...Map.groupBy(culprits, (call) => placeOf(call)[PLACE.rank]).values()].map(([call]) => call) : culprits;
  const most = several ? MOST_CULPRITS : 3, more = firsts.length - most;
  const buttons = firsts.slice(0, most).map((call, place) => {
    const button = element("button", `${several ? page.pairs[call[CALL.pair]] : place ? "then" : "first culprit"}: ${call[CALL.record]}`, "fail");
    button.title = call[CALL.reason];
    button.addEventListener("click", () => lookAt(call));
    return button;
  });
  return several && more > 0 ? [...buttons, element("span", `and on ${plural(more, "more rank")}`, "soft")] : buttons;
}

function start() {
  for (const call of page.calls) call.path = modulePath(call);
  const culprits = page.calls.filter((call) => call[CALL.cause] === "culprit");
  const first = culprits[0] ?? page.calls.find((call) => call[CALL.outcome] === "fail") ?? page.calls.find((call) => call[CALL.outcome] === "warn");
  showHeader(answer(first), `${page.title}, ${page.about}`, page.notes);
  byId("culprits").append(...culpritButtons(culprits));
  byId("pair").replaceChildren(...[["all", -1], ...page.pairs.map((name, place) => [name, place])].map(([name, value]) => {
    const option = element("option", name);
    option.value = String(value);
    return option;
  }));
  byId("pair").hidden = page.pairs.length < 2;
  byId("pair").addEventListener("change", (event) => { state.pair = Number(event.target.value); plot(); refresh(); });
  const counts = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, page.rows.filter((row) => row[ROW.outcome] === outcome).length]));
  state.showAll = outcomeButtons(byId("outcomes"), OUTCOMES, counts, state.shown, refresh);
  onWords(byId("search"), (words) => { state.words = words; refresh(); });
  byId("scroller").addEventListener("keydown", press);
  window.addEventListener("resize", plot);
  tree();
  legend();
  refresh();
  views.show("table-view");
  oneStop(byId("tree"), "button, summary");
  onLink((fragment) => {
    const linked = linkedRow(fragment);
    if (linked) goToRow(linked);
    return Boolean(linked);
  }, () => (first ? goTo(first) : describe(null)));
}

start();
