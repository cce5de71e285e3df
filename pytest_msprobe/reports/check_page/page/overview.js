/* All records at once: what they ran on, what was skipped and why, the worst and the slowest. */

const SHOWN = 8;
const wrongByApi = Map.groupBy(wrongRows, (row) => columnsOf.api[row]);
const KEYS_HELP =
  "Keys: / searches, arrows or j and k go through the table, f goes to the next failure, o shows this overview.";

function overview() {
  const worst = [...wrongByApi.values()].map(([row]) => row), { seconds } = columnsOf;
  const slowest = allRows.filter((row) => seconds[row]).sort((a, b) => seconds[b] - seconds[a]);
  const named = (row) => `${columnsOf.name[row]} ${placeText(row)}`;
  const others = (row) => wrongByApi.get(columnsOf.api[row]).length - 1;
  const more = (row) => (others(row) ? `, and ${others(row)} more of ${word("api", row)}` : "");
  const outcomes = countBy(allRows, (row) => word("outcome", row)).map(([outcome, count]) => `${count} ${outcome}`);
  const dropped = `${page.dropped} failures have no details here, to keep the page small: the journal has them.`;
  return [
    element("h2", "Overview"), element("p", outcomes.join(", ")), ...historyOverview(),
    ...section("Failures, the worst of each API", worst, (row) => `${marginOf(row)}  ${named(row)}${more(row)}`),
    ...counted("Skipped", (row) => severity(row) === 0),
    ...counted("Passed with weak evidence", (row) => severity(row) === 1 && word("reason", row)),
    ...section("Slowest, in seconds", slowest.slice(0, SHOWN), (row) => `${seconds[row]}  ${named(row)}`),
    element("h3", "How it was judged"), runsTable(),
    ...(page.dropped ? [element("p", dropped, "warn")] : []), element("p", KEYS_HELP, "soft"),
  ];
}

/* How many rows have each key, the most first. */
function countBy(rows, key) {
  return [...Map.groupBy(rows, key)].map(([one, { length }]) => [one, length]).sort((a, b) => b[1] - a[1]);
}

function section(title, rows, text) {
  if (!rows.length) return [];
  const more = rows.length > SHOWN ? [element("p", `and ${rows.length - SHOWN} more: see the table`, "soft")] : [];
  return [element("h3", title), listOf(rows.slice(0, SHOWN).map((row) => recordButton(row, text(row)))), ...more];
}

function counted(title, chosen) {
  const rows = allRows.filter(chosen), counts = countBy(rows, (row) => word("reason", row) || "no reason given");
  const lines = counts.map(([reason, count]) => [count, reason]);
  const table = plainTable(["records", "reason"], lines, "words");
  return rows.length ? [element("h3", `${title}: ${rows.length}`), table] : [];
}

/* Of many runs what differs between them comes first. */
function runsTable() {
  const { runs } = page, names = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
  const lines = [
    ["began", (run) => run.began], ["device and versions", (run) => run.devices.join("; ")],
    ["math modes", (run) => run.modes.join("; ")],
    ...names.map((name) => [name, (run) => run.settings[name] ?? "(default)"]),
  ].map(([name, of]) => [name, ...runs.map(of)]);
  const different = ([, ...cells]) => new Set(cells).size > 1;
  const titles = runs.map((_, place) => (runs.length > 1 ? `run ${place + 1}` : ""));
  const ranked = lines.toSorted((a, b) => different(b) - different(a));
  return plainTable(["", ...titles], [["of", ...runs.map((run) => run.name)], ...ranked], "words");
}
