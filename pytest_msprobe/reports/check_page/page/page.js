const OUTCOMES = ["fail", "crash", "timeout", "oom", "error", "warn", "pass", "skip"];
const LOW = -4, HIGH = 6, BINS = 40;
const outcomeOf = (row) => word("outcome", row);
const state = { by: 0, group: null, plotted: [] };

const wordColumn = (title, width, name) => ({ title, width, of: (row) => word(name, row) });
const table = makeRecords(ranked, [
  { title: "Result", width: 80, narrow: 60, of: outcomeOf, by: severity, look: outcomeOf },
  ...historyColumns(),
  { title: "Record", width: 210, narrow: 120, name: true, of: (row) => columnsOf.name[row] },
  {
    title: "Error / allowed", width: 120, number: true,
    of: (row) => (severity(row) ? marginOf(row) : ""), by: (row) => (severity(row) ? margins[row] : ""),
  },
  { ...wordColumn("Why", hasPast ? 140 : 220, "reason"), narrow: 180, grow: true },
  wordColumn("Dtype", 84, "dtype"), wordColumn("Metric that decides", 174, "metric"),
  wordColumn("Standard", 130, "standard"),
  { title: "Seconds", width: 94, number: true, of: (row) => columnsOf.seconds[row] || "" },
  ...(wordsOf.card.length > 1 ? [wordColumn("Card", 90, "card")] : []),
  ...(wordsOf.dump.length > 1 ? [wordColumn("Dump", 120, "dump")] : []),
  ...(page.runs.length > 1 ? [{ title: "Run", width: 120, of: (row) => runName(columnsOf.run[row]) }] : []),
  { title: "#", width: 70, number: true, of: (row) => row },
], {
  open: show, label: "Records", name: "records", noun: ["record"], outcomes: OUTCOMES, outcomeOf,
  textOf: (row) => [columnsOf.name[row], ...SEARCHED.map((name) => word(name, row))],
  isWanted: (row) => state.group === null || GROUPINGS[state.by][1](row) === state.group,
  forget: () => { state.group = null; showGroups(); },
  changed: (rows) => {
    const judged = new Set(rows.filter(severity));
    state.plotted = points.filter(({ row }) => judged.has(row));
    drawPlot();
  },
});
const SEARCHED = ["dtype", "metric", "standard", "reason", "card", "dump"];

/* A record in the plot; its label is made when the pointer is on it. */
class Point {
  constructor(row) { this.row = row; }
  get value() { return margins[this.row]; }
  get place() { return this.row; }
  get outcome() { return LOOKS[severity(this.row)]; }
  get isMarked() { return isWrong(this.row); }
  get label() { return `${columnsOf.name[this.row]} ${placeText(this.row)}`; }
}
const points = allRows.map((row) => new Point(row));
const plot = new LogPlot(byId("plot"), {
  titles: { x: "record, in the order of the run", y: "error / allowed" },
  limits: [{ value: 1, text: "limit", outcome: "fail" }], choose: (point) => table.goTo(point.row),
});

function drawPlot() {
  plot.draw(state.plotted, points[table.chosen()], rowCount);
}

/* The chosen record, or the overview where none is. */

function show(row) {
  showSheet([row === null ? overview() : sheetOf(row)], row === null ? "" : fragmentOf(row));
  plot.choose(points[row]);
}

/* A button that opens a record. */
function recordButton(row, text, look) {
  return button(text, () => table.goTo(row), look);
}

/* Groups: how many of each failed, and the shares of the limits that they used up, small to the left, with the limit. */

const MOST_GROUPS = 300;

function showGroups() {
  const [, key, text, order] = GROUPINGS[state.by], found = new Map();
  for (const row of ranked) {
    // Rows come the worst first, so that the first of a group is its worst.
    const group = found.get(key(row)) ?? { key: key(row), first: row, count: 0, wrong: 0, bins: new Uint32Array(BINS) };
    found.set(key(row), group);
    group.count++;
    if (isWrong(row)) group.wrong++;
    if (severity(row) > 0) group.bins[binOf(margins[row])]++;
  }
  const sorted = order ? [...found.values()].sort(order) : [...found.values()];
  const shown = sorted.slice(0, MOST_GROUPS).map((group) => asGroup(group, text(group.first)));
  groupButtons(shown, state.group, (chosen) => {
    state.group = chosen;
    showGroups();
    table.refresh();
  });
  if (sorted.length > MOST_GROUPS) byId("groups").append(element("p", `and ${sorted.length - MOST_GROUPS} more`));
}

function binOf(margin) {
  if (!(margin > 0)) return 0;
  // The limit is the end of a bin: nothing above it shares a bin with what is below.
  return Math.max(1, Math.min(BINS - 1, Math.ceil(((Math.log10(margin) - LOW) / (HIGH - LOW)) * (BINS - 1))));
}

function asGroup({ key, first, count, wrong, bins }, name) {
  const counts = element("span", `${wrong ? `${wrong} of ` : ""}${count}`, wrong ? "fail" : "");
  const title = severity(first) > 0 ? `${name}: largest error / allowed ${marginOf(first)}` : name;
  return { key, title, content: [element("span", name, "name"), counts, strip(bins)] };
}

function strip(bins) {
  const canvas = element("canvas", [], "", { width: BINS * 6, height: 14 }), limit = binOf(1);
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.body), top = Math.log2(1 + Math.max(...bins));
  bins.forEach((count, place) => {
    if (!count) return;
    const height = 2 + (11 * Math.log2(1 + count)) / top;
    pen.fillStyle = style.getPropertyValue(place > limit ? "--fail" : "--pass");
    pen.fillRect(place * 6, 14 - height, 5, height);
  });
  pen.fillStyle = style.getPropertyValue("--soft");
  pen.fillRect(limit * 6 + 5, 0, 1, 14);
  return canvas;
}

/* Keys that work everywhere but in a field. */

function nextFailure() {
  const rows = table.rows(), at = rows.indexOf(table.chosen());
  const next = rows.find((row, place) => place > at && isWrong(row)) ?? rows.find(isWrong);
  if (next !== undefined) table.goTo(next);
}

function showOverview() {
  table.choose(null);
  show(null);
}

onKeys(document, (event) => {
  if (event.key === "Escape" && event.target === byId("search")) byId("scroller").focus();
  return isForPage(event) ? { f: nextFailure, o: showOverview } : {};
});

/* Paper has no table to scroll: it gets the overview and the worst records in full. */

const PRINTED = 40;

window.addEventListener("beforeprint", () => {
  const sheets = wrongRows.slice(0, PRINTED).map((row) => element("article", sheetOf(row)));
  byId("print").replaceChildren(overview(), ...sheets);
});
window.addEventListener("afterprint", () => byId("print").replaceChildren());

const [run] = page.runs, isOneRun = page.runs.length === 1;
const where = isOneRun ? run.name : `${page.runs.length} runs`;
const facts = [run.began, ...run.devices].filter(Boolean).join(", ");
const about = isOneRun ? facts : "Each record of each run, the worst first";
showHeader(`${wrongRows.length} of ${plural(rowCount, "record")} of ${where} failed`, about, runNotes());
choices(byId("by"), GROUPINGS.map(([name], place) => [name, place]), (by) => showGroup(Number(by), null));
byId("show-overview").addEventListener("click", showOverview);
window.addEventListener("resize", drawPlot);
window.addEventListener("themechange", showGroups);
const met = ["warn", "pass"].filter((outcome) => table.counts[outcome]);
byId("plot-box").append(plotLegend([
  ...(wrongRows.length ? [["marked", "failed"]] : []), ...met.map((one) => [one, `${one}ed`]), ["limit", "limit"],
]));
showGroups();
oneStop(byId("groups"), "button");
table.refresh();
table.followLinks(linkedRow, showOverview);
