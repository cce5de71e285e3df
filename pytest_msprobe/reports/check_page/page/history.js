/* What earlier runs made of the records: `past` has the runs by date, and of each their results by row. */

const past = page.history ?? { runs: [], results: [], note: "" };
const hasPast = past.runs.length > 0;
const beforeWords = (row) => past.words.before[past.before[row]];
const changeOf = (row) => past.words.change[past.changes[row]];
const CHANGES = { broken: "passed last time", worse: "worse", new: "new", better: "better", mended: "failed last time", "": "as last time" };
const CHANGE_ORDER = Object.keys(CHANGES);
const CHANGE_LOOKS = { broken: "fail", worse: "warn", mended: "pass" };

if (hasPast) GROUPINGS.push(["change since the last run", (row) => past.changes[row], (row) => CHANGES[changeOf(row)]]);

function historyColumns() {
  if (!hasPast) return [];
  return [{
    title: "Before", width: 86, of: beforeWords, by: (row) => CHANGE_ORDER.length - CHANGE_ORDER.indexOf(changeOf(row)), look: (row) => CHANGE_LOOKS[changeOf(row)] ?? "",
  }];
}

/* The results of a record in the runs that have it, by date. */
function pastResults(row) {
  return past.results.flatMap((result, place) => {
    if (result.outcomes[row] < 0) return [];
    const outcome = past.words.outcome[result.outcomes[row]], bound = result.atMost.includes(row) ? "<= " : "";
    return [{ run: past.runs[place], outcome, margin: outcome === "skip" ? "" : `${bound}${marginText(asNumber(result.margins[row]))}` }];
  });
}

function historySection(row) {
  if (!hasPast) return [];
  const results = pastResults(row), title = element("h3", "Before");
  if (!results.length) return [title, element("p", `New: none of ${plural(past.runs.length, "earlier run")} has it.`)];
  const all = element("details");
  // A failure says first what is wrong.
  all.open = !page.details[row];
  all.append(element("summary", `${plural(results.length, "earlier result")}, the last first`), resultsTable(results.toReversed(), row));
  return [title, resultsStrip(results), all];
}

/* A block for each result, from left to right in time, coloured by its outcome; the table says the same. */
function resultsStrip(results) {
  const strip = element("div", undefined, "past");
  strip.setAttribute("role", "img");
  strip.setAttribute("aria-label", `From the first to the last: ${results.map(({ outcome }) => outcome).join(", ")}`);
  strip.append(...results.map(({ run, outcome, margin }) => {
    const block = element("i", undefined, outcome);
    block.title = [run.began, outcome, margin].filter(Boolean).join(", ");
    return block;
  }));
  return strip;
}

function resultsTable(results, row) {
  const devices = new Set(results.map(({ run }) => run.devices.join("; ")));
  const table = plainTable(
    ["run", "result", "error / allowed", "device and versions"],
    results.map(({ run, outcome, margin }) => [run.began, outcome, margin, devices.size > 1 ? run.devices.join("; ") : ""]),
    "words results",
  );
  table.querySelectorAll("tbody tr").forEach((line, place) => {
    const { run, outcome } = results[place], [when, result] = line.cells;
    result.className = outcome;
    when.title = run.name;
    if (run.page) when.replaceChildren(pageLink(run, row));
  });
  if (devices.size === 1) {
    table.querySelectorAll("tr > :last-child").forEach((cell) => cell.remove());
    table.append(element("p", [...devices][0] && `All on ${[...devices][0]}`, "soft"));
  }
  return table;
}

function pageLink(run, row) {
  const link = element("a", run.began);
  link.href = `${run.page}#${encodeURIComponent(fragmentOf(row))}`;
  link.title = `The page of ${run.name}`;
  return link;
}

/* What is to be seen first: what failed anew, and what no earlier run has. */
function historyOverview() {
  if (!page.history) return [];
  const lines = [element("h3", "Since the last run"), element("p", past.note, "soft")];
  if (!hasPast) return lines;
  const count = (change) => allRows.filter((row) => changeOf(row) === change).length;
  const list = element("ul"), rest = { worse: count("worse"), better: count("better"), mended: count("mended") };
  const broken = allRows.filter((row) => changeOf(row) === "broken");
  list.append(changeLine(`${plural(broken.length, "record fails", "records fail")} that passed last time`, "broken", broken.length && "fail"));
  if (count("new")) list.append(changeLine(`${count("new")} ${count("new") === 1 ? "is" : "are"} new`, "new"));
  if (rest.mended) list.append(changeLine(`${plural(rest.mended, "record passes", "records pass")} that failed last time`, "mended", "pass"));
  if (rest.worse) list.append(changeLine(`${rest.worse} came closer to the limit, or went farther beyond`, "worse", "warn"));
  if (rest.better) list.append(changeLine(`${rest.better} went away from it`, "better"));
  lines.splice(1, 0, list);
  return lines;
}

/* A line that shows its records in the table. */
function changeLine(text, change, look) {
  const line = element("li"), button = element("button", text, look || "");
  button.addEventListener("click", () => showGroup(GROUPINGS.findIndex(([name]) => name === "change since the last run"), past.words.change.indexOf(change)));
  line.append(past.words.change.includes(change) ? button : element("span", text));
  return line;
}

function showGroup(by, key) {
  byId("by").value = String(by);
  state.by = by;
  state.group = key;
  groups();
  refresh();
}
