/* Calls by place: each column of the page is a list. */

// From the gravest, of which the severity is 7.
const OUTCOMES = ["fail", "missing", "partner", "warn", "pass", "skip", ""];
const OUTCOME_WORDS = {
  fail: "wrong", missing: "missing", partner: "with one that is wrong", warn: "warned", pass: "right",
  skip: "not judged, with a reason", "": "not judged",
};
const { lane: laneOf, column: columnOf, name: nameOf } = page.columns;
const word = (name, call) => page.words[name][page.columns[name][call]];
const outcomeOf = (call) => word("outcome", call);
const rankOf = (call) => page.lanes[laneOf[call]];
const allCalls = Array.from(nameOf, (_, call) => call);
const columnCount = columnOf.reduce((most, column) => Math.max(most, column + 1), 1);
const severityAs = (outcome) => OUTCOMES.length - Math.max(0, OUTCOMES.indexOf(outcome));
const MISSING = severityAs("missing"), severityOf = page.words.outcome.map(severityAs);
const severity = (call) => severityOf[page.columns.outcome[call]];
const beginnings = new Set(page.begins);

// What came of each place of the grid: of several calls in one the worst.
const callAt = new Int32Array(page.lanes.length * columnCount).fill(-1);
for (const call of allCalls) {
  const at = laneOf[call] * columnCount + columnOf[call];
  if (callAt[at] < 0 || severity(call) > severity(callAt[at]) || beginnings.has(call)) callAt[at] = call;
}

// Of several that a call is in, the first.
const joinsOf = new Map(page.joins.toReversed().flatMap((join) => join.map((call) => [call, join])));
const fragmentOf = (call) => `${rankOf(call)}/${nameOf[call]}`;
const linkedCall = (fragment) => allCalls.find((call) => fragment && fragmentOf(call) === fragment);
