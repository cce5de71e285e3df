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
const points = new Map(page.rows.map((row, place) => [row, {
  row, place, value: typeof numberOf(row) === "number" ? numberOf(row) : null,
  outcome: LOOKS[severity(row)], isMarked: severity(row) === 3, label: row[ROW.name],
}]));

const numberColumn = {
  title: page.numberTitle, number: true, of: (row) => numberOf(row) ?? "not measured",
  by: (row) => numberOf(row) ?? (severity(row) === 3 ? Infinity : ""),
};
const sideColumn = (title) => ({ title, isApart: true, of: (row) => row[ROW[title.toLowerCase()]] });
const table = makeRecords(ranked, [
  { title: "Result", of: (row) => row[ROW.outcome], by: severity, look: (row) => row[ROW.outcome] },
  { title: "Name", name: true, of: (row) => row[ROW.name] },
  ...(page.numberTitle ? [numberColumn] : []),
  { title: "Why", grow: true, of: (row) => row[ROW.why] },
  ...(hasSides ? [sideColumn("Target"), sideColumn("Golden")] : []),
  { title: "Group", of: (row) => row[ROW.group] },
], {
  label: "Differences", noun: [page.noun], nameOf: (row) => row[ROW.name], sheetOf,
  emptySheet: () => [element("p", "Nothing differs. Choose a row to see it in full.", "soft")],
  outcomes: OUTCOMES, outcomeOf: (row) => row[ROW.outcome],
  shown: differs ? OUTCOMES.filter((outcome) => outcome !== "pass") : OUTCOMES,
  groups: { describe: describeGroup },
  // How far the sides are apart, in their order.
  plot: page.numberTitle ? {
    points: [...points.values()], pointOf: (row) => points.get(row), keeps: true, limits: [],
    titles: { x: `${page.noun}, in order`, y: page.numberTitle.toLowerCase() },
    words: { marked: "differs", warn: "warned", pass: "equal enough" },
  } : null,
});

function sheetOf(row) {
  return [
    ...nextSteps({ dump: row[ROW.file], record: row[ROW.record] }), table.sheets.facts(row),
    ...(row[ROW.target] || row[ROW.golden] ? sides(row[ROW.target], row[ROW.golden]) : []),
    ...titledTexts(row[ROW.details]),
  ];
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

function describeGroup({ rows }) {
  const worst = Math.max(...rows.map(severity)), wrong = rows.filter((row) => severity(row) >= 2).length;
  return { counts: wrongText(wrong, rows.length), look: worst >= 2 ? LOOKS[worst] : "soft" };
}

showHeader(page.title, page.about, page.notes);
byId("plot-box").hidden = !page.numberTitle;
table.groups.show(ranked, (row) => [row[ROW.group]]);
table.refresh();
table.followLinks(table.sheets.find, () => (differs ? table.goTo(ranked[0]) : table.choose(null)));
