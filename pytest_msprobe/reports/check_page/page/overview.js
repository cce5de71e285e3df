/* All records at once: what they ran on, what was skipped and why, the worst and the slowest. */

const SHOWN = 8;
const wrongByApi = Map.groupBy(wrongRows, (row) => columnsOf.api[row]);
const KEYS_HELP =
  "Keys: / searches, arrows or j and k go through the table, f goes to the next failure, o shows this overview.";

function overview() {
  const worst = [...wrongByApi.values()].map(([row]) => row);
  const named = (row) => `${columnsOf.name[row]} ${placeText(row)}`;
  const outcomes = countBy(allRows, (row) => word("outcome", row)).map(([outcome, count]) => `${count} ${outcome}`);
  const dropped = `${page.dropped} failures have no details here, to keep the page small: the journal has them.`;
  return [
    element("h2", "Overview"), element("p", outcomes.join(", ")), ...historyOverview(),
    ...section("Failures, the worst of each API", worst, (row) => `${marginOf(row)}  ${named(row)}${moreOfApi(row)}`),
    ...counted("Skipped", (row) => severity(row) === 0),
    ...counted("Passed with little judged", (row) => severity(row) === 1 && word("reason", row)),
    ...section("Slowest, in seconds", slowest(), (row) => `${columnsOf.seconds[row]}  ${named(row)}`),
    element("h3", "How it was judged"), ...runsTable(),
    ...(page.dropped ? [element("p", dropped, "warn")] : []), element("p", KEYS_HELP, "soft"),
  ];
}

function moreOfApi(row) {
  const others = wrongByApi.get(columnsOf.api[row]).length - 1;
  return others ? `, and ${others} more of ${word("api", row)}` : "";
}

/* How many rows have each key, the most first. */
function countBy(rows, key) {
  const counts = new Map();
  for (const row of rows) counts.set(key(row), (counts.get(key(row)) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

function slowest() {
  const seconds = columnsOf.seconds;
  return allRows.filter((row) => seconds[row]).sort((a, b) => seconds[b] - seconds[a]).slice(0, SHOWN);
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

function runsTable() {
  const { runs } = page, names = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
  const several = runs.length > 1;
  const lines = [
    ["began", (run) => run.began], ["device and versions", (run) => run.devices.join("; ")],
    ["math modes", (run) => run.modes.join("; ")],
    ...names.map((name) => [name, (run) => run.settings[name] ?? "(default)"]),
  ].map(([name, of]) => [name, ...runs.map(of)]);
  // With many runs, only the settings that differ; otherwise all.
  const isShown = ([, ...cells]) => !several || new Set(cells).size > 1;
  const same = lines.filter((line) => !isShown(line) && line[1]).map(([name, cell]) => `${name}: ${cell}`);
  const titles = runs.map((_, place) => (several ? `run ${place + 1}` : ""));
  return [
    plainTable(["", ...titles], [["of", ...runs.map((run) => run.name)], ...lines.filter(isShown)], "words"),
    ...(same.length ? [element("p", `The same in all runs: ${same.join("; ")}`, "soft")] : []),
  ];
}
