/* Records by row: each column is a list of values, or of places in a list of words. */

const columnsOf = page.columns, wordsOf = page.words;
const rowCount = columnsOf.name.length;
const word = (name, row) => wordsOf[name][columnsOf[name][row]];
const margins = columnsOf.margin.map(asNumber), atMost = new Set(page.atMost);
const marginOf = (row) => marginText(margins[row], atMost.has(row));
const severities = wordsOf.outcome.map(gravityOf), severity = (row) => severities[columnsOf.outcome[row]];
const isWrong = (row) => severity(row) === 3;

const allRows = Array.from({ length: rowCount }, (_, row) => row);

/* What records can be grouped by besides columns: a title, the name of a row's group, perhaps rows in another order. */
const GROUPINGS = [
  ["API", (row) => `${word("api", row)} ${word("direction", row)}`.trim()],
  ["Direction", (row) => word("direction", row) || "none"],
  // Each failure has a reason of its own.
  ["Reason of skips, warnings and weak evidence", (row) => (isWrong(row) ? "failures" : word("reason", row) || "none")],
];

const runName = (place) => (page.runs.length > 1 ? `${place + 1}: ` : "") + page.runs[place].name;

/* The worst first, those of one severity by margin, equal ones in the order of the run. inf less inf is NaN, no order. */
const ranked = [3, 2, 1, 0].flatMap((level) => {
  return allRows.filter((row) => severity(row) === level).sort((a, b) => margins[b] - margins[a] || a - b);
});
const wrongRows = ranked.filter(isWrong);

function placeText(row) {
  const card = word("card", row), dump = word("dump", row), run = page.runs.length > 1 && runName(columnsOf.run[row]);
  return [card && `on ${card}`, dump && `in ${dump}`, run && `of run ${run}`].filter(Boolean).join(", ");
}

/* What distinguishes records of one name. */
function placesOf(row) {
  const places = ["dump", "card"].filter((name) => wordsOf[name].length > 1).map((name) => word(name, row));
  return page.runs.length > 1 ? [...places, columnsOf.run[row]] : places;
}

/* Commands on a record; a test of the reader's own has neither dump nor record. */
function commandsOf(row) {
  const rerun = word("rerun", row), dump = word("chosen", row).replace(/::$/, "");
  const saved = page.details[row]?.saved || undefined;
  const values = { rerun, saved, ...(dump && { dump, record: columnsOf.name[row] }) };
  const { rerunTitle } = page.runs[columnsOf.run[row]];
  return rerun.length ? nextSteps(values, [[rerunTitle, ["<rerun>"]], ...page.commands]) : [];
}
