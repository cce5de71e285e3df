// A row: [name, group, outcome, why, target, golden, number, details, file, record]
const ROW = { name: 0, group: 1, outcome: 2, why: 3, target: 4, golden: 5, number: 6, details: 7, file: 8, record: 9 };
const OUTCOMES = ["fail", "crash", "timeout", "error", "warn", "pass", "skip"];
const severity = (row) => gravityOf(row[ROW.outcome]);
const numberOf = (row) => asNumber(row[ROW.number]);
const distance = (row) => numberOf(row) ?? Infinity;
const ranked = page.rows.slice().sort((a, b) => severity(b) - severity(a) || distance(b) - distance(a) || 0);
const hasSides = page.rows.some((row) => row[ROW.target] || row[ROW.golden]);
// What is equal is not looked for, unless all is.
const differs = page.rows.some((row) => severity(row) >= 2);
let chosenGroup = null;

const numberColumn = {
  title: page.numberTitle, width: 120, number: true, of: (row) => numberOf(row) ?? "not measured",
  by: (row) => numberOf(row) ?? (severity(row) === 3 ? Infinity : ""),
};
const sideColumn = (title) => ({ title, width: 108, of: (row) => row[ROW[title.toLowerCase()]] });
const table = makeRecords(ranked, [
  { title: "Result", width: 66, of: (row) => row[ROW.outcome], by: severity, look: (row) => row[ROW.outcome] },
  { title: "Name", width: 200, narrow: 150, name: true, of: (row) => row[ROW.name] },
  ...(page.numberTitle ? [numberColumn] : []),
  { title: "Why", width: 180, grow: true, of: (row) => row[ROW.why] },
  ...(hasSides ? [sideColumn("Target"), sideColumn("Golden")] : []),
  { title: "Group", width: 130, of: (row) => row[ROW.group] },
], {
  open: show, label: "Differences", name: "differences", noun: [page.noun],
  outcomes: OUTCOMES, outcomeOf: (row) => row[ROW.outcome],
  shown: differs ? OUTCOMES.filter((outcome) => outcome !== "pass") : OUTCOMES,
  textOf: (row) => [ROW.name, ROW.group, ROW.why, ROW.target, ROW.golden].map((field) => row[field]),
  isWanted: (row) => chosenGroup === null || row[ROW.group] === chosenGroup,
  forget: () => { chosenGroup = null; showGroups(); },
});

/* One row in full. */

function show(row) {
  const [name, group, outcome, why] = row, number = [page.numberTitle.toLowerCase(), numberText(numberOf(row))];
  showSheet([
    element("h2", name), linkButton(name), ...nextSteps({ dump: row[ROW.file], record: row[ROW.record] }),
    factsList([["result", outcome, outcome], ["why", why], number, ["group", group]]),
    ...(row[ROW.target] || row[ROW.golden] ? sides(row[ROW.target], row[ROW.golden]) : []),
    ...titledTexts(row[ROW.details]),
  ], name);
  plot?.choose(points.get(row));
}

/* Both sides, with what differs marked: all but what they begin and end with alike. */
function sides(target, golden) {
  const shorter = Math.min(target.length, golden.length);
  let before = 0, after = 0;
  while (before < shorter && target[before] === golden[before]) before++;
  while (after < shorter - before && target.at(-1 - after) === golden.at(-1 - after)) after++;
  return [["Target", target], ["Golden", golden]].flatMap(([title, text]) => {
    const end = text.length - after, mark = element("mark", text.slice(before, end));
    const shown = target === golden ? text : [text.slice(0, before), mark, text.slice(end)];
    return [element("h3", title), element("pre", text ? shown : "none", "side")];
  });
}

/* Groups, those with the most that differs first. */
function showGroups() {
  const count = (rows, level) => rows.filter((row) => severity(row) === level).length;
  const groups = [...Map.groupBy(page.rows, (row) => row[ROW.group])].map(([key, rows]) => {
    const wrong = count(rows, 3), warned = count(rows, 2), look = wrong ? "fail" : warned ? "warn" : "soft";
    const text = `${wrong + warned ? `${wrong + warned} of ` : ""}${rows.length}`;
    return { key, wrong, warned, content: [element("span", key), element("span", text, look)] };
  }).sort((a, b) => b.wrong - a.wrong || b.warned - a.warned);
  groupButtons(groups, chosenGroup, (key) => { chosenGroup = key; showGroups(); table.refresh(); });
}

/* How far the sides are apart, in the order of the sides. */

const points = new Map(page.rows.map((row) => [row, {
  row, value: typeof numberOf(row) === "number" ? numberOf(row) : null,
  outcome: LOOKS[severity(row)], isMarked: severity(row) === 3, label: row[ROW.name],
}]));
const plot = page.numberTitle ? new LogPlot(byId("plot"), {
  titles: { x: `${page.noun}, in order`, y: page.numberTitle.toLowerCase() },
  limits: [], choose: (point) => table.goTo(point.row),
}) : null;

function drawPlot() {
  plot?.draw([...points.values()], points.get(table.chosen()));
}

showHeader(page.title, page.about, page.notes);
byId("plot-box").hidden = !plot;
const marks = [["marked", "differs", 3], ["warn", "warned", 2], ["pass", "equal enough", 1]];
const met = marks.filter(([, , level]) => page.rows.some((row) => severity(row) === level));
if (plot) byId("plot-box").append(plotLegend(met));
window.addEventListener("resize", drawPlot);
showGroups();
oneStop(byId("groups"), "button");
table.refresh();
drawPlot();
const nothing = element("p", "Nothing differs. Choose a row to see it in full.", "soft");
table.followLinks((fragment) => page.rows.find((row) => row[ROW.name] === fragment), () => {
  if (differs) table.goTo(ranked[0]);
  else byId("details").replaceChildren(nothing);
});
