const OUTCOMES = ["fail", "crash", "timeout", "oom", "error", "warn", "pass", "skip"];
const LOW = -4, HIGH = 6, BINS = 40;
const outcomeOf = (row) => word("outcome", row);

/* Records in the plot, but those that were skipped. */
const points = allRows.map((row) => (severity(row) === 0 ? null : {
  row, place: row, value: margins[row], outcome: LOOKS[severity(row)], isMarked: isWrong(row),
}));

const wordColumn = (title, name) => ({ title, isGroup: true, of: (row) => word(name, row) });
const columns = [
  { title: "Result", of: outcomeOf, by: severity, look: outcomeOf },
  ...historyColumns(),
  { title: "Record", name: true, of: (row) => columnsOf.name[row] },
  {
    title: "Error / allowed", number: true,
    of: (row) => (severity(row) ? marginOf(row) : ""), by: (row) => (severity(row) ? margins[row] : ""),
  },
  { title: "Why", grow: true, of: (row) => word("reason", row) },
  wordColumn("Dtype", "dtype"), wordColumn("Metric that decides", "metric"), wordColumn("Standard", "standard"),
  { title: "Seconds", number: true, of: (row) => columnsOf.seconds[row] || "" },
  ...(wordsOf.card.length > 1 ? [wordColumn("Card", "card")] : []),
  ...(wordsOf.dump.length > 1 ? [wordColumn("Dump", "dump")] : []),
  ...(page.runs.length > 1 ? [{ title: "Run", isGroup: true, of: (row) => runName(columnsOf.run[row]) }] : []),
  { title: "#", number: true, isApart: true, of: (row) => row },
];
const table = makeRecords(ranked, columns, {
  label: "Records", noun: ["record"], outcomes: OUTCOMES, outcomeOf,
  nameOf: (row) => columnsOf.name[row], placesOf, textOf: (row) => [placeText(row)], sheetOf, emptySheet: overview,
  groups: { describe: describeGroup },
  plot: {
    points: points.filter(Boolean), pointOf: (row) => points[row],
    labelOf: ({ row }) => `${columnsOf.name[row]} ${placeText(row)}`,
    titles: { x: "record, in the order of the run", y: "error / allowed" },
    limits: [{ value: 1, text: "limit", outcome: "fail" }],
    words: { marked: "failed", warn: "warned", pass: "passed", limit: "limit" },
  },
});

/* A button that opens a record. */
const recordButton = (row, text, look) => button(text, () => table.goTo(row), look);

/* Groups: how many of each failed, and the shares of the limits that they used up, small to the left, with the limit. */

const byColumn = columns.filter(({ isGroup }) => isGroup).map(({ title, of }) => [title, (row) => of(row) || "none"]);
const groupings = [...GROUPINGS, ...byColumn];

function showGroups(by, names = []) {
  const [, nameOf, rows = ranked] = groupings[by];
  byId("by").value = by;
  table.groups.show(rows, (row) => [nameOf(row)], names);
  table.refresh();
}

function describeGroup({ rows }) {
  const wrong = rows.filter(isWrong).length;
  return { counts: wrongText(wrong, rows.length), look: wrong ? "fail" : "soft", more: [strip(rows.filter(severity))] };
}

function binOf(margin) {
  if (!(margin > 0)) return 0;
  // The limit is the end of a bin: nothing above it shares a bin with what is below.
  return Math.max(1, Math.min(BINS - 1, Math.ceil(((Math.log10(margin) - LOW) / (HIGH - LOW)) * (BINS - 1))));
}

function strip(rows) {
  const counts = Array(BINS).fill(0), limit = binOf(1);
  for (const row of rows) counts[binOf(margins[row])] += 1;
  const most = Math.log2(1 + Math.max(...counts));
  const bar = (count, bin) => (count ? `M${bin} 14v-${2 + (11 * Math.log2(1 + count)) / most}h.8V14` : "");
  const bars = (look, isIn) => svg("path", { class: look, d: counts.map(bar).filter((_, bin) => isIn(bin)).join("") });
  return svg("svg", { viewBox: `0 0 ${BINS} 14`, preserveAspectRatio: "none", "aria-hidden": "true" }, [
    bars("pass", (bin) => bin <= limit), bars("fail", (bin) => bin > limit),
    svg("path", { class: "soft", d: `M${limit + 0.85} 0h.15V14h-.15` }),
  ]);
}

/* Keys that work everywhere but in a field. */

const showOverview = () => table.choose(null);

onKeys(document, (event) => (isForPage(event) ? { f: () => table.goOn(isWrong), o: showOverview } : {}));

/* Paper has no table to scroll: it gets the overview and the worst records in full. */

const PRINTED = 40;

window.addEventListener("beforeprint", () => {
  const sheets = wrongRows.slice(0, PRINTED).map((row) => element("article", table.sheets.full(row)));
  byId("print").replaceChildren(...overview(), ...sheets);
});
window.addEventListener("afterprint", () => byId("print").replaceChildren());

const [run] = page.runs, isOneRun = page.runs.length === 1;
const where = isOneRun ? run.name : `${page.runs.length} runs`;
const ranOn = [run.began, ...run.devices].filter(Boolean).join(", ");
const about = isOneRun ? ranOn : "Each record of each run, the worst first";
showHeader(`${wrongRows.length} of ${plural(rowCount, "record")} of ${where} failed`, about, runNotes());
choices(byId("by"), groupings.map(([name], place) => [name, place]), showGroups);
byId("show-overview").addEventListener("click", showOverview);
showGroups(0);
table.followLinks(table.sheets.find, showOverview);
