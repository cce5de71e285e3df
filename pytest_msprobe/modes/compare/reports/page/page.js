const OUTCOMES = ["fail", "warn", "pass", "skip"];
const OUTCOME_WORDS = { fail: "wrong", warn: "warned", pass: "equal enough", skip: "not compared" };

// A row: [call, name, dtype, shape, outcome, cause, messages, metrics, statistics of both, worst index, histogram]
const ROW = {
  call: 0, name: 1, dtype: 2, shape: 3, outcome: 4, cause: 5, messages: 6, metrics: 7, target: 8, golden: 9, worst: 10,
  histogram: 11,
};
// A call: [record, golden, pair, order, outcome, cause, reason, module, stack, error]
const CALL = {
  record: 0, golden: 1, pair: 2, order: 3, outcome: 4, cause: 5, reason: 6, module: 7, stack: 8, error: 9,
};

// How many chips of first culprits are shown.
const MOST_CULPRITS = 8;
// A place of a pair of dumps: [step, rank, dump]; step and rank may be null.
const PLACE = { step: 0, rank: 1, dump: 2 };
const isSeveral = (place) => new Set(page.places.map((one) => one[place])).size > 1;
const pairOf = (row) => callOf(row)[CALL.pair];
const placeColumn = (title, place) => ({ title, number: true, of: (row) => page.places[pairOf(row)][place] });
const metricColumn = (title, place) => ({ title, number: true, of: (row) => row[ROW.metrics][place] });
const [firstMetric, ...otherMetrics] = page.metrics.map(metricColumn);
const isCulprit = (row) => row[ROW.cause] === "culprit";
const culprits = page.calls.filter((call) => call[CALL.cause] === "culprit");
const callOf = (row) => page.calls[row[ROW.call]];
const gravity = (row) => gravityOf(row[ROW.outcome]);
const points = page.calls.map(asPoint);
let chosenPair = -1;
const table = makeRecords(page.rows, [
  { title: "Result", of: (row) => row[ROW.outcome], by: gravity, look: (row) => row[ROW.outcome] },
  { title: "Value", name: true, of: (row) => row[ROW.name] },
  firstMetric,
  ...["Step", "Rank"].map(placeColumn).filter((_, place) => isSeveral(place)),
  { title: "Message", grow: true, of: (row) => row[ROW.messages] },
  { title: "Cause", of: (row) => row[ROW.cause] },
  { title: "Dtype", of: (row) => row[ROW.dtype] },
  { title: "Shape", of: (row) => row[ROW.shape] },
  ...otherMetrics,
  { title: "#", number: true, isApart: true, of: (row) => callOf(row)[CALL.order] },
], {
  label: "Values", look: (row) => row[ROW.cause], noun: ["value"], sheetOf,
  nameOf: (row) => row[ROW.name], placesOf: (row) => (page.pairs.length > 1 ? [page.pairs[pairOf(row)]] : []),
  emptySheet: () => [element("p", "Choose a value of the table, a point of the plot or a module.", "soft")],
  outcomes: OUTCOMES, outcomeOf: (row) => row[ROW.outcome],
  textOf: (row) => [callOf(row)[CALL.golden], callOf(row)[CALL.module]],
  isWanted: (row) => chosenPair < 0 || pairOf(row) === chosenPair,
  prints: (row) => !first || gravity(row) > gravityOf("pass"), forget: () => showPair(-1),
  groups: { describe: describeModule, of: callOf },
  plot: {
    points, pointOf: (row) => row && points[row[ROW.call]], choose: (point) => lookAt(point.call),
    titles: { x: "call, in execution order", y: "scaled error" },
    limits: page.limits.map(([dtype, limit]) => {
      return { value: limit, text: `fails above ${limit} in ${dtype}`, outcome: "fail" };
    }),
    words: { marked: "a difference begins here", ...OUTCOME_WORDS, limit: "limit" },
  },
});
const plot = table.drawPlot;

function showPair(pair) {
  byId("pair").value = chosenPair = pair;
}

/* One row in full. */

function sheetOf(row) {
  const call = callOf(row), number = row[ROW.call], title = "Elements by relative error";
  return [
    ...(inGraphs.has(number) ? [button("show in the graph", () => showInGraph(number))] : []),
    ...wrongValues(number), ...commandsOf(call), factsOf(row, call),
    ...(call[CALL.reason] ? [element("pre", unbroken(call[CALL.reason]))] : []),
    ...(row[ROW.histogram].length ? [element("h3", title), barChart(page.bins, [["target", row[ROW.histogram]]], {
      label: title, titleOf: (name, count) => `${name}: ${count}`,
    })] : []),
    ...titledTexts([["Called at", page.stacks[call[CALL.stack]]]]),
  ];
}

function commandsOf(call) {
  return nextSteps({ dump: page.places[call[CALL.pair]][PLACE.dump], record: call[CALL.record] });
}

function factsOf(row, call) {
  const statistics = ["max", "min", "mean", "norm"].map((title, at) => {
    const sides = [row[ROW.target], row[ROW.golden]].map((one) => numberText(asNumber(one?.[at])));
    return [title, sides.some((side) => side !== "") ? sides.join(" against ") : ""];
  });
  const ofCall = [["Golden call", call[CALL.golden] ?? "none"], ["Module", call[CALL.module]]];
  return table.sheets.facts(row, [...ofCall, ["Worst element", row[ROW.worst]], ...statistics]);
}

/* Every wrong value of a call, what it was given before what it returned: there a cause is. */
function wrongValues(number) {
  const call = page.calls[number], isOutput = (row) => placeOf(row, call).startsWith("output");
  const isWrong = (row) => row[ROW.outcome] === "fail", rows = rowsOfCalls.get(number) ?? [];
  const wrong = rows.filter(isWrong).sort((a, b) => isOutput(a) - isOutput(b));
  const message = (row) => row[ROW.messages].split("\n")[0] || row[ROW.outcome];
  const lines = wrong.map((row) => [button(placeOf(row, call), () => table.goTo(row)), ": ", ...unbroken(message(row))]);
  const title = element("h3", `${plural(wrong.length, "wrong value")} of this call`);
  return wrong.length ? [title, listOf(lines, "wrong-values")] : [];
}

/* What came of calls together: the worst outcome, the greatest error, how many are wrong, whether one is a culprit. */
function summed() {
  return { worst: "skip", calls: 0, wrong: 0, error: null, hasCulprit: false };
}

function addCall(sum, call) {
  const error = asNumber(call[CALL.error]);
  sum.calls++;
  sum.wrong += call[CALL.outcome] === "fail";
  sum.hasCulprit ||= call[CALL.cause] === "culprit";
  if (gravityOf(call[CALL.outcome]) > gravityOf(sum.worst)) sum.worst = call[CALL.outcome];
  if (error !== null && !(error <= sum.error)) sum.error = error;
}

const callsText = ({ wrong, calls, worst }) => (
  wrong ? `${wrong} of ${plural(calls, "call")} wrong` : `${plural(calls, "call")} ${OUTCOME_WORDS[worst]}`
);

/* Modules, each with what came of the calls in it; those with a culprit are marked and open. */
function describeModule({ rows, depth }) {
  const all = summed();
  rows.forEach((call) => addCall(all, call));
  const isOpen = all.hasCulprit || (!culprits.length && all.wrong > 0 && depth < 3);
  const counts = wrongText(all.wrong, all.calls), title = callsText(all);
  return { counts, look: all.worst, title, isMarked: all.hasCulprit, isOpen };
}

function chooseNode(path) {
  table.groups.mark(path.split("/"));
  table.refresh();
}

/* A call in the plot; a value of training against inference has a limit of its own. */
function asPoint(call, number) {
  const { [CALL.record]: record, [CALL.outcome]: outcome, [CALL.cause]: cause } = call;
  const label = cause ? `${record} (${cause})` : record;
  const value = asNumber(call[CALL.error]), limit = asNumber(page.allowed[number]);
  return { place: number, value, outcome, isMarked: cause === "culprit", label, call, limit };
}

/* Show a call in the table, at the worst of its values; filters that hide it are taken back. */
function goTo(call) {
  const ofCall = () => table.rows().filter((row) => callOf(row) === call);
  const isOutput = (row) => row[ROW.name].includes(".output.");
  if (!ofCall().length) table.widen();
  const [worst] = ofCall().sort((a, b) => gravity(b) - gravity(a) || isOutput(b) - isOutput(a));
  if (worst !== undefined) table.goTo(worst);
}

/* The page. */

function modulePath(call) {
  // Module.block.fc.Linear.forward.0 is block/fc; what has no module is grouped by the type of its API, and a value of
  // training against inference, which is of no call, by its own name.
  const name = call[CALL.module] || (/^(Module|Cell)\./.test(call[CALL.record]) ? call[CALL.record] : "");
  const parts = name.split(".");
  const end = parts.findIndex((part, place) => place > 1 && /^(forward|backward|parameters_grad)$/.test(part));
  if (!name && page.tokens) return call[CALL.record].replaceAll(".", "/");
  if (!name) return `outside of modules/${call[CALL.record].split(".")[0]}`;
  if (!/^(Module|Cell)$/.test(parts[0]) || end < 0) return name.replaceAll(".", "/");
  return parts.slice(1, end - 1).join("/") || parts[1];
}

/* How many values differ, and where the first of them is. */
function answer(first) {
  const { fail: wrong = 0, warn: warned = 0, skip = 0 } = table.counts;
  const all = plural(page.rows.length, "value"), warnings = `${plural(warned, "is", "are")} warned of`;
  const differing = wrong ? `${grouped(wrong)} of ${all} ${wrong === 1 ? "differs" : "differ"}` : "";
  if (!first) return page.rows.length === skip ? "nothing was compared" : `none of ${all} differs`;
  const where = page.pairs.length > 1 ? `at ${page.pairs[first[CALL.pair]]}` : `in ${first[CALL.record]}`;
  return `${differing || `none of ${all} is wrong, ${warnings}`}, first ${where}`;
}

/* The first culprits: of several pairs of dumps that of each rank, of one pair the first three. */
function culpritButtons() {
  const several = page.pairs.length > 1, placeOf = (call) => page.places[call[CALL.pair]];
  const ofRanks = Map.groupBy(culprits, (call) => placeOf(call)[PLACE.rank]).values();
  const firsts = several ? [...ofRanks].map(([call]) => call) : culprits;
  const most = several ? MOST_CULPRITS : 3, more = firsts.length - most;
  const buttons = firsts.slice(0, most).map((call, place) => {
    const which = several ? page.pairs[call[CALL.pair]] : place ? "then" : "first culprit";
    const made = button(`${which}: ${call[CALL.record]}`, () => lookAt(call), "fail");
    return filled(made, [], { title: call[CALL.reason] });
  });
  return several && more > 0 ? [...buttons, element("span", `and on ${plural(more, "more rank")}`, "soft")] : buttons;
}

for (const call of page.calls) call.path = modulePath(call);
const firstOf = (outcome) => page.calls.find((call) => call[CALL.outcome] === outcome);
const first = culprits[0] ?? firstOf("fail") ?? firstOf("warn");
showHeader(answer(first), `${page.title}, ${page.about}`, page.notes);
byId("culprits").append(...culpritButtons());
choices(byId("pair"), ["all", ...page.pairs].map((name, place) => [name, place - 1]), (pair) => {
  showPair(Number(pair));
  table.refresh();
});
byId("pair").hidden = page.pairs.length < 2;
// Of the table's keys, n and p go from culprit to culprit.
onKeys(byId("scroller"), () => ({ n: () => table.goOn(isCulprit), p: () => table.goOn(isCulprit, -1) }));
table.groups.show(page.calls, (call) => call.path.split("/"));
table.refresh();
views.show("table-view");
table.followLinks(table.sheets.find, () => (first ? goTo(first) : table.choose(null)));
