/* What earlier runs made of the records: `past` has the runs by date, and of each their results by row. */

const past = page.history ?? { runs: [], results: [], note: "" };
const hasPast = past.runs.length > 0;
const beforeWords = (row) => past.words.before[past.before[row]];
const changeOf = (row) => past.words.change[past.changes[row]];

/* How records changed, the gravest first: the name of their group, what is said of so many, and its look. */
const CHANGES = {
  broken: ["passed last time", (count) => `${plural(count, "fails", "fail")} that passed last time`, "fail"],
  worse: ["worse", (count) => `${count} came closer to the limit, or went farther beyond`, "warn"],
  new: ["new", (count) => `${plural(count, "is", "are")} new`],
  better: ["better", (count) => `${count} went away from it`],
  mended: ["failed last time", (count) => `${plural(count, "passes", "pass")} that failed last time`, "pass"],
  "": ["as last time"],
};
const BY_CHANGE = GROUPINGS.length;

if (hasPast) GROUPINGS.push(["Change since the last run", (row) => CHANGES[changeOf(row)][0]]);

function historyColumns() {
  const rankOf = (row) => -Object.keys(CHANGES).indexOf(changeOf(row)), look = (row) => CHANGES[changeOf(row)][2];
  return hasPast ? [{ title: "Before", of: beforeWords, by: rankOf, look }] : [];
}

/* The results of a record in the runs that have it, by date. */
function pastResults(row) {
  return past.results.flatMap((result, place) => {
    if (result.outcomes[row] < 0) return [];
    const outcome = past.words.outcome[result.outcomes[row]];
    const margin = outcome === "skip" ? "" : marginText(asNumber(result.margins[row]), result.atMost.includes(row));
    return [{ run: past.runs[place], outcome, margin }];
  });
}

function historySection(row) {
  if (!hasPast) return [];
  const results = pastResults(row), title = element("h3", "Before");
  if (!results.length) return [title, element("p", `New: none of ${plural(past.runs.length, "earlier run")} has it.`)];
  const words = `${plural(results.length, "earlier result")}, the last first`;
  const all = element("details", [element("summary", words), resultsTable(results.toReversed(), row)]);
  // A failure says first what is wrong.
  all.open = !page.details[row];
  return [title, resultsStrip(results), all];
}

/* A block for each result, from left to right in time, coloured by its outcome; the table says the same. */
function resultsStrip(results) {
  const label = `From the first to the last: ${results.map(({ outcome }) => outcome).join(", ")}`;
  const titleOf = ({ run, outcome, margin }) => [run.began, outcome, margin].filter(Boolean).join(", ");
  const blocks = results.map((result) => element("i", [], result.outcome, { title: titleOf(result) }));
  return element("div", blocks, "past", { role: "img", "aria-label": label });
}

function resultsTable(results, row) {
  const device = ({ devices }) => devices.join("; "), several = new Set(results.map(({ run }) => device(run))).size > 1;
  const titles = ["run", "result", "error / allowed", ...(several ? ["device and versions"] : [])];
  const link = (run) => (run.page ? { href: `${run.page}#${encodeURIComponent(table.sheets.fragmentOf(row))}` } : {});
  return plainTable(titles, results.map(({ run, outcome, margin }) => [
    element(run.page ? "a" : "span", run.began, "", { title: run.name, ...link(run) }),
    element("span", outcome, outcome), margin, ...(several ? [device(run)] : []),
  ]), "words results");
}

/* What is to be seen first: what failed anew, and what no earlier run has. */
function historyOverview() {
  if (!page.history) return [];
  const title = element("h3", "Since the last run"), note = element("p", past.note, "soft");
  if (!hasPast) return [title, note];
  const lines = Object.entries(CHANGES).flatMap(([change, [group, text, look]]) => {
    const { length } = allRows.filter((row) => changeOf(row) === change);
    if (!text || (!length && change !== "broken")) return [];
    return length ? button(text(length), () => showGroups(BY_CHANGE, [group]), look) : element("span", text(0));
  });
  return [title, listOf(lines), note];
}
