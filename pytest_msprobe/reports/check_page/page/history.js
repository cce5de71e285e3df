/* What earlier runs made of the records: `past` has the runs by date, and of each their results by row. */

const past = page.history ?? { runs: [], results: [], note: "" };
const hasPast = past.runs.length > 0;
const beforeWords = (row) => past.words.before[past.before[row]];
const changeOf = (row) => past.words.change[past.changes[row]];
const CHANGES = { broken: "passed last time", worse: "worse", new: "new", better: "better", mended: "failed last time", "": "as last time" };
const CHANGE_ORDER = Object.keys(CHANGES);
const CHANGE_LOOKS = { broken: "fail", worse: "warn", mended: "pass" };

if (hasPast) GROUPINGS.push(["change since the last run", (row) => CHANGES[changeOf(row)]]);

function historyColumns() {
  const rankOf = (row) => CHANGE_ORDER.length - CHANGE_ORDER.indexOf(changeOf(row));
  const look = (row) => CHANGE_LOOKS[changeOf(row)];
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
  const all = element("details", [element("summary", words), ...resultsTable(results.toReversed(), row)]);
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
  const devices = new Set(results.map(({ run }) => run.devices.join("; "))), several = devices.size > 1;
  const [only] = devices;
  const titles = ["run", "result", "error / allowed", ...(several ? ["device and versions"] : [])];
  const lines = results.map(({ run, outcome, margin }) => [
    run.page ? pageLink(run, row) : element("span", run.began, "", { title: run.name }),
    element("span", outcome, outcome),
    margin, ...(several ? [run.devices.join("; ")] : []),
  ]);
  const same = !several && only ? [element("p", `All on ${only}`, "soft")] : [];
  return [plainTable(titles, lines, "words results"), ...same];
}

function pageLink(run, row) {
  const href = `${run.page}#${encodeURIComponent(table.fragmentOf(row))}`;
  return element("a", run.began, "", { href, title: `The page of ${run.name}` });
}

/* What is to be seen first: what failed anew, and what no earlier run has. */
function historyOverview() {
  if (!page.history) return [];
  const title = element("h3", "Since the last run"), note = element("p", past.note, "soft");
  if (!hasPast) return [title, note];
  const lines = [
    ["broken", (count) => `${plural(count, "record fails", "records fail")} that passed last time`, "fail"],
    ["new", (count) => `${plural(count, "is", "are")} new`],
    ["mended", (count) => `${plural(count, "record passes", "records pass")} that failed last time`, "pass"],
    ["worse", (count) => `${count} came closer to the limit, or went farther beyond`, "warn"],
    ["better", (count) => `${count} went away from it`],
  ].map(([change, text, look]) => {
    const { length } = allRows.filter((row) => changeOf(row) === change);
    return length || change === "broken" ? [changeLine(text(length), change, length ? look : "")] : [];
  });
  return [title, listOf(lines.flat()), note];
}

/* A line that shows its records in the table. */
function changeLine(text, change, look) {
  const by = GROUPINGS.findIndex(([name]) => name === "change since the last run");
  return past.words.change.includes(change) ? button(text, () => showGroups(by, [CHANGES[change]]), look) : element("span", text);
}
