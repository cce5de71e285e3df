const OUTCOMES = ["fail", "crash", "timeout", "oom", "error", "warn", "pass", "skip"];
const LOW = -4, HIGH = 6, BINS = 40;
const state = { shown: new Set(OUTCOMES), words: [], by: 0, group: null, texts: [], plotted: [] };

const table = makeTable(byId("scroller"), [
  { title: "Result", width: 80, narrow: 60, of: (row) => word("outcome", row), by: (row) => severity(row), look: (row) => word("outcome", row) },
  ...historyColumns(),
  { title: "Record", width: 210, narrow: 120, name: true, of: (row) => columnsOf.name[row] },
  { title: "Error / allowed", width: 120, number: true, of: (row) => (severity(row) ? marginOf(row) : ""), by: (row) => (severity(row) ? margins[row] : "") },
  { title: "Why", width: hasPast ? 140 : 220, narrow: 180, grow: true, of: (row) => word("reason", row) },
  { title: "Dtype", width: 84, of: (row) => word("dtype", row) },
  { title: "Metric that decides", width: 174, of: (row) => word("metric", row) },
  { title: "Standard", width: 130, of: (row) => word("standard", row) },
  { title: "Seconds", width: 94, number: true, of: (row) => columnsOf.seconds[row] || "" },
  ...(wordsOf.card.length > 1 ? [{ title: "Card", width: 90, of: (row) => word("card", row) }] : []),
  ...(wordsOf.dump.length > 1 ? [{ title: "Dump", width: 120, of: (row) => word("dump", row) }] : []),
  ...(page.runs.length > 1 ? [{ title: "Run", width: 120, of: (row) => runName(columnsOf.run[row]) }] : []),
  { title: "#", width: 70, number: true, of: (row) => row },
], { open: show, label: "Records", name: "records" });

const COLOURS = ["skip", "pass", "warn", "fail"];

/* A record in the plot; its label is made when the pointer is on it. */
class Point {
  constructor(row) { this.row = row; }
  get value() { return margins[this.row]; }
  get place() { return this.row; }
  get outcome() { return COLOURS[severity(this.row)]; }
  get isMarked() { return isWrong(this.row); }
  get label() { return `${columnsOf.name[this.row]} ${placeText(this.row)}`; }
}
const points = allRows.map((row) => new Point(row));
const plot = new LogPlot(byId("plot"), byId("tip"), {
  titles: { x: "record, in the order of the run", y: "error / allowed" },
  limits: [{ value: 1, text: "limit", outcome: "fail" }], choose: (point) => open(point.row),
});

/* Which rows are shown. */

function refresh() {
  const key = GROUPINGS[state.by][1], shown = outcomeWords.map((outcome) => state.shown.has(outcome)), visible = new Uint8Array(rowCount);
  const rows = ranked.filter((row) => shown[outcomeCodes[row]] && (state.group === null || key(row) === state.group) && matches(row));
  for (const row of rows) visible[row] = severity(row);
  table.show(rows);
  byId("count").textContent = `${rows.length} of ${rowCount} records`;
  state.plotted = points.filter((point) => visible[point.row]);
  drawPlot();
}

function drawPlot() {
  plot.draw(state.plotted, points[table.chosen()], rowCount);
}

function matches(row) {
  if (!state.words.length) return true;
  const text = state.texts[row] ??= [columnsOf.name[row], ...["dtype", "metric", "standard", "reason", "card", "dump"].map((name) => word(name, row))].join(" ").toLowerCase();
  return state.words.every((one) => text.includes(one));
}

/* The chosen record. */

function show(row) {
  byId("details").replaceChildren(row === null ? overview() : sheetOf(row));
  byId("details").scrollTop = 0;
  if (row !== null) openPane("details-box");
  plot.choose(points[row]);
  setFragment(row === null ? "" : fragmentOf(row));
}

function open(row) {
  if (!table.rows().includes(row)) widen();
  table.scrollTo(row);
  table.choose(row);
}

/* Show everything again. */
function widen() {
  state.words = [];
  state.group = null;
  byId("search").value = "";
  state.showAll();
  groups();
  refresh();
}

/* Groups: how many of each failed, and the shares of the limits that they used up, small to the left, with the limit. */

const MOST_GROUPS = 300;

function groups() {
  const [, key, text, order] = GROUPINGS[state.by], found = new Map();
  for (const row of ranked) {
    let group = found.get(key(row));
    // Rows come the worst first, so that the first of a group is its worst.
    if (!group) found.set(key(row), group = { key: key(row), first: row, count: 0, wrong: 0, bins: new Uint32Array(BINS) });
    group.count++;
    if (isWrong(row)) group.wrong++;
    if (severity(row) > 0) group.bins[binOf(margins[row])]++;
  }
  const sorted = order ? [...found.values()].sort(order) : [...found.values()];
  byId("groups").replaceChildren(...sorted.slice(0, MOST_GROUPS).map((group) => groupButton(group, text(group.first))));
  if (sorted.length > MOST_GROUPS) byId("groups").append(element("p", `and ${sorted.length - MOST_GROUPS} more`));
}

function binOf(margin) {
  if (!(margin > 0)) return 0;
  // The limit is the end of a bin: nothing above it shares a bin with what is below.
  return Math.max(1, Math.min(BINS - 1, Math.ceil(((Math.log10(margin) - LOW) / (HIGH - LOW)) * (BINS - 1))));
}

function groupButton(group, name) {
  const button = element("button"), strip = element("canvas"), judged = severity(group.first) > 0;
  button.append(element("span", name, "name"), element("span", `${group.wrong ? `${group.wrong} of ` : ""}${group.count}`, group.wrong ? "fail" : ""), strip);
  button.title = judged ? `${name}: largest error / allowed ${marginOf(group.first)}` : name;
  button.setAttribute("aria-pressed", String(state.group === group.key));
  button.addEventListener("click", () => {
    state.group = state.group === group.key ? null : group.key;
    byId("groups").querySelectorAll("button").forEach((one) => one.setAttribute("aria-pressed", String(one === button && state.group !== null)));
    refresh();
  });
  drawStrip(strip, group.bins);
  return button;
}

function drawStrip(canvas, bins) {
  canvas.width = BINS * 6;
  canvas.height = 14;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.body), top = Math.log2(1 + Math.max(...bins));
  const limit = binOf(1);
  bins.forEach((count, place) => {
    if (!count) return;
    const height = 2 + (11 * Math.log2(1 + count)) / top;
    pen.fillStyle = style.getPropertyValue(place > limit ? "--fail" : "--pass");
    pen.fillRect(place * 6, 14 - height, 5, height);
  });
  pen.fillStyle = style.getPropertyValue("--soft");
  pen.fillRect(limit * 6 + 5, 0, 1, 14);
}

/* Keys that work everywhere but in a field. */

function nextFailure() {
  const rows = table.rows(), at = rows.indexOf(table.chosen());
  const next = rows.find((row, place) => place > at && isWrong(row)) ?? rows.find(isWrong);
  if (next !== undefined) open(next);
}

function showOverview() {
  table.choose(null);
  show(null);
}

const KEYS = { f: nextFailure, o: showOverview };
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target === byId("search")) return byId("scroller").focus();
  if (!isForPage(event) || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});

/* Paper has no table to scroll: it gets the overview and the worst records in full. */

const PRINTED = 40;

window.addEventListener("beforeprint", () => {
  byId("print").replaceChildren(overview(), ...wrongRows.slice(0, PRINTED).map((row) => {
    const article = element("article");
    article.append(sheetOf(row));
    return article;
  }));
});
window.addEventListener("afterprint", () => byId("print").replaceChildren());

function start() {
  const counts = Object.fromEntries(countBy(allRows, (row) => word("outcome", row)));
  const where = page.runs.length === 1 ? page.runs[0].name : `${page.runs.length} runs`;
  const about = page.runs.length === 1 ? [page.runs[0].began, ...page.runs[0].devices].filter(Boolean).join(", ") : "Each record of each run, the worst first";
  showHeader(`${wrongRows.length} of ${plural(rowCount, "record")} of ${where} failed`, about, runNotes());
  byId("by").replaceChildren(...GROUPINGS.map(([name], place) => {
    const option = element("option", name);
    option.value = String(place);
    return option;
  }));
  byId("by").addEventListener("change", (event) => {
    state.by = Number(event.target.value);
    state.group = null;
    groups();
    refresh();
  });
  state.showAll = outcomeButtons(byId("outcomes"), OUTCOMES, counts, state.shown, refresh);
  onWords(byId("search"), (words) => { state.words = words; refresh(); });
  byId("show-overview").addEventListener("click", KEYS.o);
  window.addEventListener("resize", drawPlot);
  window.addEventListener("themechange", groups);
  byId("plot-box").append(plotLegend([
    ...(wrongRows.length ? [["marked", "failed"]] : []), ...["warn", "pass"].filter((outcome) => counts[outcome]).map((outcome) => [outcome, `${outcome}ed`]), ["limit", "limit"],
  ]));
  groups();
  oneStop(byId("groups"), "button");
  refresh();
  // A link to a record opens it.
  onLink((fragment) => {
    const linked = linkedRow(fragment);
    if (linked >= 0) open(linked);
    return linked >= 0;
  }, showOverview);
}

start();
