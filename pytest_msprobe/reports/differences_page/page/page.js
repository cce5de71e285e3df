// A row: [name, group, outcome, why, target, golden, number, details, file, record]
const ROW = { name: 0, group: 1, outcome: 2, why: 3, target: 4, golden: 5, number: 6, details: 7, file: 8, record: 9 };
const OUTCOMES = ["fail", "crash", "timeout", "error", "warn", "pass", "skip"];
const SEVERITY = { skip: 0, pass: 1, warn: 2 };
const severity = (row) => SEVERITY[row[ROW.outcome]] ?? 3;
const numberOf = (row) => asNumber(row[ROW.number]);
const ranked = page.rows.slice().sort((a, b) => severity(b) - severity(a) || (numberOf(b) ?? Infinity) - (numberOf(a) ?? Infinity) || page.rows.indexOf(a) - page.rows.indexOf(b));
const hasSides = page.rows.some((row) => row[ROW.target] || row[ROW.golden]);
// What is equal is not looked for, unless all is.
const differs = page.rows.some((row) => severity(row) >= 2);
const state = { words: [], group: null, shown: new Set(differs ? OUTCOMES.filter((outcome) => outcome !== "pass") : OUTCOMES) };

const table = makeTable(byId("scroller"), [
  { title: "Result", width: 66, of: (row) => row[ROW.outcome], by: severity, look: (row) => row[ROW.outcome] },
  { title: "Name", width: 200, narrow: 150, name: true, of: (row) => row[ROW.name] },
  ...(page.numberTitle ? [{ title: page.numberTitle, width: 120, number: true, of: (row) => numberOf(row) ?? "not measured", by: (row) => numberOf(row) ?? (severity(row) === 3 ? Infinity : "") }] : []),
  { title: "Why", width: 180, grow: true, of: (row) => row[ROW.why] },
  ...(hasSides ? [{ title: "Target", width: 108, of: (row) => row[ROW.target] }, { title: "Golden", width: 108, of: (row) => row[ROW.golden] }] : []),
  { title: "Group", width: 130, of: (row) => row[ROW.group] },
], { open: show, label: "Differences", name: "differences" });

function refresh() {
  const rows = ranked.filter((row) => state.shown.has(row[ROW.outcome]) && (state.group === null || row[ROW.group] === state.group) && matches(row));
  byId("count").textContent = `${rows.length} of ${plural(page.rows.length, page.noun)}`;
  table.show(rows);
}

function matches(row) {
  if (!state.words.length) return true;
  row.text ??= [ROW.name, ROW.group, ROW.why, ROW.target, ROW.golden].map((field) => row[field]).join(" ").toLowerCase();
  return state.words.every((word) => row.text.includes(word));
}

/* One row in full. */

function show(row) {
  const box = byId("details"), parts = [element("h2", row[ROW.name]), linkButton(row[ROW.name]), ...nextSteps({ dump: row[ROW.file], record: row[ROW.record] })];
  parts.push(factsList([["result", row[ROW.outcome], row[ROW.outcome]], ["why", row[ROW.why]], [page.numberTitle.toLowerCase(), numberText(numberOf(row))], ["group", row[ROW.group]]]));
  if (row[ROW.target] || row[ROW.golden]) parts.push(...sides(row[ROW.target], row[ROW.golden]));
  for (const [name, text] of row[ROW.details]) parts.push(element("h3", name), element("pre", text));
  box.replaceChildren(...parts);
  box.scrollTop = 0;
  openPane("details-box");
  setFragment(row[ROW.name]);
  plot?.choose(points.get(row));
}

/* Both sides, with what differs marked: all but what they begin and end with alike. */
function sides(target, golden) {
  let before = 0, after = 0;
  while (before < target.length && before < golden.length && target[before] === golden[before]) before++;
  while (after < target.length - before && after < golden.length - before && target.at(-1 - after) === golden.at(-1 - after)) after++;
  return [["Target", target], ["Golden", golden]].flatMap(([title, text]) => {
    const shown = element("pre", undefined, "side"), end = text.length - after;
    if (target === golden) shown.append(text || "none");
    else shown.append(text.slice(0, before), element("mark", text.slice(before, end)), text.slice(end));
    if (!text) shown.replaceChildren("none");
    return [element("h3", title), shown];
  });
}

function open(row) {
  if (!table.rows().includes(row)) widen();
  table.scrollTo(row);
  table.choose(row);
}

/* Show everything again. */
function widen() {
  Object.assign(state, { words: [], group: null });
  byId("search").value = "";
  state.showAll();
  groups();
  refresh();
}

/* Groups, those with the most that differs first. */

function groups() {
  const found = new Map();
  for (const row of page.rows) {
    const group = found.get(row[ROW.group]) ?? { count: 0, wrong: 0, warned: 0 };
    group.count++;
    if (severity(row) === 3) group.wrong++;
    if (severity(row) === 2) group.warned++;
    found.set(row[ROW.group], group);
  }
  const sorted = [...found].sort(([, a], [, b]) => b.wrong - a.wrong || b.warned - a.warned);
  byId("groups").replaceChildren(...sorted.map(([name, { count, wrong, warned }]) => {
    const button = element("button"), differing = wrong + warned;
    button.append(element("span", name), element("span", differing ? `${differing} of ${count}` : String(count), wrong ? "fail" : warned ? "warn" : "soft"));
    button.setAttribute("aria-pressed", String(state.group === name));
    button.addEventListener("click", () => {
      state.group = state.group === name ? null : name;
      groups();
      refresh();
    });
    return button;
  }));
}

/* How far the sides are apart, in the order of the sides. */

const points = new Map(page.rows.map((row) => [row, {
  row, value: typeof numberOf(row) === "number" ? numberOf(row) : null, outcome: ["skip", "pass", "warn", "fail"][severity(row)], isMarked: severity(row) === 3, label: row[ROW.name],
}]));
const plot = page.numberTitle ? new LogPlot(byId("plot"), byId("tip"), {
  titles: { x: `${page.noun}, in order`, y: page.numberTitle.toLowerCase() }, limits: [], choose: (point) => open(point.row),
}) : null;

function drawPlot() {
  plot?.draw([...points.values()], points.get(table.chosen()));
}

function start() {
  showHeader(page.title, page.about, page.notes);
  byId("plot-box").hidden = !plot;
  if (plot) byId("plot-box").append(plotLegend([["marked", "differs", 3], ["warn", "warned", 2], ["pass", "equal enough", 1]].filter(([, , level]) => page.rows.some((row) => severity(row) === level))));
  const counts = {};
  for (const row of page.rows) counts[row[ROW.outcome]] = (counts[row[ROW.outcome]] ?? 0) + 1;
  state.showAll = outcomeButtons(byId("outcomes"), OUTCOMES, counts, state.shown, refresh);
  onWords(byId("search"), (words) => { state.words = words; refresh(); });
  window.addEventListener("resize", drawPlot);
  groups();
  oneStop(byId("groups"), "button");
  refresh();
  drawPlot();
  const first = ranked.find((row) => severity(row) >= 2);
  const nothing = element("p", "Nothing differs. Choose a row to see it in full.", "soft");
  onLink((fragment) => {
    const linked = page.rows.find((row) => row[ROW.name] === fragment);
    if (linked) open(linked);
    return Boolean(linked);
  }, () => (first ? open(first) : byId("details").replaceChildren(nothing)));
}

start();
