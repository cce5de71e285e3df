/* All records at once: what they ran on, what was skipped and why, the worst and the slowest. */

function overview() {
  const sheet = element("div");
  sheet.append(element("h2", "Overview"), outcomesText());
  sheet.append(...historyOverview());
  section(sheet, "Failures, the worst of each API", worstByApi(), (row) => `${marginOf(row)}  ${columnsOf.name[row]} ${placeText(row)}${moreOfApi(row)}`);
  counted(sheet, "Skipped", (row) => severity(row) === 0);
  counted(sheet, "Passed with little judged", (row) => severity(row) === 1 && word("reason", row));
  section(sheet, "Slowest, in seconds", slowest(), (row) => `${columnsOf.seconds[row]}  ${columnsOf.name[row]} ${placeText(row)}`);
  sheet.append(element("h3", "How it was judged"), runsTable());
  if (page.dropped) sheet.append(element("p", `${page.dropped} failures have no details here, to keep the page small: the journal has them.`, "warn"));
  sheet.append(element("p", "Keys: / searches, arrows or j and k go through the table, f goes to the next failure, o shows this overview.", "soft"));
  return sheet;
}

const SHOWN = 8;
const wrongByApi = Map.groupBy(wrongRows, (row) => columnsOf.api[row]);

function worstByApi() {
  return [...wrongByApi.values()].map(([worst]) => worst);
}

function moreOfApi(row) {
  const others = wrongByApi.get(columnsOf.api[row]).length - 1;
  return others ? `, and ${others} more of ${word("api", row)}` : "";
}

function outcomesText() {
  return element("p", [...countBy(allRows, (row) => word("outcome", row))].map(([outcome, count]) => `${count} ${outcome}`).join(", "));
}

function countBy(rows, key) {
  const counts = new Map();
  for (const row of rows) counts.set(key(row), (counts.get(key(row)) ?? 0) + 1);
  return new Map([...counts].sort((a, b) => b[1] - a[1]));
}

function slowest() {
  const seconds = columnsOf.seconds, found = [];
  for (const row of allRows) {
    if (!seconds[row] || (found.length === SHOWN && seconds[row] <= seconds[found[SHOWN - 1]])) continue;
    found.push(row);
    found.sort((a, b) => seconds[b] - seconds[a]);
    found.length = Math.min(found.length, SHOWN);
  }
  return found;
}

function section(sheet, title, rows, text) {
  if (!rows.length) return;
  const list = element("ul");
  for (const row of rows.slice(0, SHOWN)) {
    const item = element("li"), button = element("button", text(row));
    button.addEventListener("click", () => open(row));
    item.append(button);
    list.append(item);
  }
  sheet.append(element("h3", title), list);
  if (rows.length > SHOWN) sheet.append(element("p", `and ${rows.length - SHOWN} more: see the table`, "soft"));
}

function counted(sheet, title, chosen) {
  const rows = allRows.filter(chosen), counts = countBy(rows, (row) => word("reason", row) || "no reason given");
  if (rows.length) sheet.append(element("h3", `${title}: ${rows.length}`), plainTable(["records", "reason"], [...counts].map(([reason, count]) => [count, reason]), "words"));
}

function runsTable() {
  const names = [...new Set(page.runs.flatMap((run) => Object.keys(run.settings)))], several = page.runs.length > 1;
  const lines = [
    ["began", (run) => run.began], ["device and versions", (run) => run.devices.join("; ")], ["math modes", (run) => run.modes.join("; ")],
    ...names.map((name) => [name, (run) => run.settings[name] ?? "(default)"]),
  ].map(([name, of]) => [name, ...page.runs.map(of)]);
  // With many runs, only the settings that differ; otherwise all.
  const shown = several ? lines.filter(([, ...cells]) => new Set(cells).size > 1) : lines;
  const same = several ? lines.filter((line) => !shown.includes(line)).map(([name, cell]) => `${name}: ${cell}`) : [];
  const box = element("div");
  const titles = page.runs.map((_, place) => (several ? `run ${place + 1}` : ""));
  box.append(plainTable(["", ...titles], [["of", ...page.runs.map((run) => run.name)], ...shown], "words"));
  if (same.length) box.append(element("p", `The same in all runs: ${same.filter((text) => !text.endsWith(": ")).join("; ")}`, "soft"));
  return box;
}
