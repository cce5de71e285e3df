/* What is shown, and what the user changes of it. */

const FINDINGS_SHOWN = 500, ALL_RANKS = -1;
const state = {
  rank: 0, task: "", statistic: page.statistics.includes("norm") ? "norm" : page.statistics[0],
  colour: page.pair ? "gap" : SERIES.target, words: [], onlyFound: false, rowHeight: 0, from: 0, to: BINS, rows: [],
  cursor: { row: null, bin: null }, chosen: null,
};

function refresh() {
  const kept = state.rows[state.cursor.row] ?? state.chosen;
  const found = new Set(page.findings.map((one) => rowName(one[FINDING.rank], one[FINDING.tensor])));
  const here = page.series.filter((one) => isOfRank(one[SERIES.rank]) && one[SERIES.statistic] === state.statistic);
  state.rows = here.filter((one) => {
    const tensor = tensorOf(one);
    if (state.task && tensor[TENSOR.task] !== state.task) return false;
    if (state.onlyFound && !found.has(rowName(one[SERIES.rank], one[SERIES.tensor]))) return false;
    tensor.text ??= `${tensor[TENSOR.task]} ${tensorText(tensor)}`.toLowerCase();
    return state.words.every((word) => tensor.text.includes(word));
  }).sort((a, b) => a[SERIES.tensor] - b[SERIES.tensor] || a[SERIES.rank] - b[SERIES.rank]);
  const isKeptRank = (one) => state.rank !== ALL_RANKS || one[SERIES.rank] === kept[SERIES.rank];
  const isKept = (one) => one[SERIES.tensor] === kept[SERIES.tensor] && isKeptRank(one);
  const row = kept ? state.rows.findIndex(isKept) : -1;
  state.cursor.row = row < 0 ? null : row;
  state.chosen = kept;
  const what = state.rank === ALL_RANKS ? "rows, one for each tensor and rank" : "tensors";
  byId("count").textContent = `${state.rows.length} of ${here.length} ${what}`;
  drawAll();
}

function drawAll() {
  byId("all-steps").hidden = state.from === 0 && state.to === BINS;
  drawLegend();
  drawMap();
  drawDetails();
}

function isOfRank(rank) {
  return state.rank === ALL_RANKS || rank === state.rank;
}

// No other row has this name.
function rowName(rank, tensor) {
  return `${rank} ${tensor}`;
}

function rowText(series) {
  const name = tensorText(tensorOf(series));
  return state.rank === ALL_RANKS ? `${name}, ${rankOf(series)}` : name;
}

function findingsHere() {
  const isShown = (statistic) => !statistic || statistic === state.statistic;
  return page.findings.filter((one) => isOfRank(one[FINDING.rank]) && isShown(one[FINDING.statistic]));
}

/* Choosing a cell. */

function moveTo(row, bin) {
  if (!state.rows.length) return;
  const before = state.cursor.row;
  state.cursor = { row, bin };
  state.chosen = state.rows[row];
  reveal(row);
  drawMap();
  if (row !== before || !byId("readout")) drawDetails();
  else showCursor();
  announceCell();
}

function reveal(row) {
  const scroller = byId("scroller"), y = row * view.row, room = scroller.clientHeight - TOP;
  if (y < scroller.scrollTop) scroller.scrollTop = y;
  else if (y + view.row > scroller.scrollTop + room) scroller.scrollTop = y + view.row - room;
}

function announceCell() {
  const series = state.rows[state.cursor.row];
  if (!series || state.cursor.bin === null) return;
  byId("cell").textContent = `${rowText(series)}, ${cellText(series, state.cursor.bin)}`;
}

function chooseSeries(series) {
  if (state.rank !== ALL_RANKS) select("rank", (state.rank = series[SERIES.rank]));
  select("statistic", (state.statistic = series[SERIES.statistic]));
  state.chosen = series;
  state.cursor.row = null;
  refresh();
  if (state.cursor.row === null) {
    clearFilters();
    refresh();
  }
  if (state.cursor.row !== null) reveal(state.cursor.row);
}

function clearFilters() {
  select("task", (state.task = ""));
  byId("search").value = "";
  state.words = [];
  state.onlyFound = false;
  byId("found").setAttribute("aria-pressed", "false");
}

function goTo(finding) {
  const own = page.series.filter((one) => isSameTensor(finding, one));
  const series = own.find((one) => one[SERIES.statistic] === finding[FINDING.statistic]) ?? own[0];
  if (!series) return;
  showStep(finding[FINDING.step] === null ? null : binOf(finding[FINDING.step]));
  chooseSeries(series);
  announceCell();
}

function showStep(bin) {
  if (bin !== null && !inSight(bin)) [state.from, state.to] = [0, BINS];
  state.cursor.bin = bin;
}

/* The map's mouse and keys. */

function tipOf({ row, bin }) {
  const series = state.rows[row], task = tensorOf(series)[TENSOR.task];
  return `${task}  ${rowText(series)}${bin === null ? "" : `\n${cellText(series, bin)}`}`;
}

function isDrag(one, other) {
  if (one.bin === null || other.bin === null) return false;
  return Math.abs(one.bin - other.bin) > Math.max(1, (state.to - state.from) / 50);
}

function zoom(one, other) {
  [state.from, state.to] = [Math.min(one, other), Math.max(one, other) + 1];
  drawAll();
}

const MOVES = {
  ...ARROWS, PageUp: [-20, 0], PageDown: [20, 0], Home: [0, -Infinity], End: [0, Infinity],
};

function keysOfMap() {
  const within = (value, low, high) => Math.max(low, Math.min(high, value)), { row, bin } = state.cursor;
  const go = ([down, right]) => () => moveTo(
    within((row ?? 0) + down, 0, state.rows.length - 1), within((bin ?? state.from) + right, state.from, state.to - 1),
  );
  const moves = state.rows.length ? Object.entries(MOVES).map(([key, move]) => [key, go(move)]) : [];
  return {
    ...Object.fromEntries(moves), ...Object.fromEntries(["+", "-", "0"].map((key) => [key, () => resizeRows(key)])),
    Escape: () => zoom(0, BINS - 1), Enter: () => byId("details").querySelector(".figure")?.focus(),
  };
}

function resizeRows(key) {
  state.rowHeight = key === "0" ? 0 : Math.max(2, Math.min(40, view.row * (key === "+" ? 1.5 : 1 / 1.5)));
  measure();
  if (state.cursor.row !== null) byId("scroller").scrollTop = state.cursor.row * view.row - byId("scroller").clientHeight / 2;
  drawMap();
}

/* The findings. */

function findings() {
  const total = page.findings.length, most = `The first ${FINDINGS_SHOWN} of ${total} findings`;
  byId("findings").hidden = !total && !page.notes.length;
  byId("findings-title").textContent = total > FINDINGS_SHOWN ? most : plural(total, "finding");
  byId("findings-body").append(...page.findings.slice(0, FINDINGS_SHOWN).map(findingLine));
  byId("notes-list").append(...page.notes.map((note) => element("li", note)));
}

function findingLine(finding) {
  const [rank, at, statistic, step, outcome, rule, message] = finding, tensor = page.tensors[at];
  const place = [tensor?.[TENSOR.task], page.ranks.length > 1 ? page.ranks[rank] : ""].filter(Boolean).join(", ");
  const open = button(tensor ? tensorText(tensor) : "", () => goTo(finding));
  const name = element("td", [open, element("span", place ? ` (${place})` : "", "skip")]);
  const [when, result, ...others] = [step ?? "", outcome, statistic, rule, message].map((text) => element("td", text));
  result.className = outcome;
  return element("tr", [when, result, name, ...others]);
}

function lead() {
  const first = page.findings[page.first], words = first?.[FINDING.message] ?? page.widest?.[WIDEST.words];
  if (words) byId("notes").append(element("p", button(words, openFirst, first?.[FINDING.outcome]), "", { id: "lead" }));
}

/* Show the first finding, or else where the runs are farthest apart. */
function openFirst() {
  if (page.findings[page.first]) return goTo(page.findings[page.first]);
  if (page.widest) {
    showStep(binOf(page.widest[WIDEST.step]));
    chooseSeries(page.series[page.widest[WIDEST.series]]);
    return announceCell();
  }
  refresh();
  moveTo(0, null);
}

/* The end of an address that opens the curves of a series, at a step where one was chosen. */

function fragmentOf(series) {
  const tensor = tensorOf(series);
  return [rankOf(series), tensor[TENSOR.task], tensorText(tensor), series[SERIES.statistic]].filter(Boolean).join("/");
}

function linkOf(series) {
  const step = state.cursor.bin === null ? "" : `@${page.starts[state.cursor.bin]}`;
  return `${fragmentOf(series)}${step}`;
}

function openLink(fragment) {
  const named = (name) => page.series.find((series) => fragmentOf(series) === name);
  // A name may end like a step.
  const whole = named(fragment), [name, step] = fragment.split(/@(\d+)$/), series = whole ?? named(name);
  if (!series) return false;
  if (!whole) showStep(binOf(Number(step)));
  chooseSeries(series);
  announceCell();
  return true;
}

/* The controls. */

function fill(id, entries, change) {
  choices(byId(id), entries, (value) => { change(value); refresh(); });
}

function select(id, value) {
  byId(id).value = String(value);
}

function controls() {
  const named = (names) => names.map((name) => [name, name]);
  const ranks = [...page.ranks.map((name, place) => [name, place]), ["all ranks", ALL_RANKS]];
  const tasks = [...new Set(page.tensors.map((tensor) => tensor[TENSOR.task]))];
  const colours = [["gap between the runs", "gap"], ["size, target", SERIES.target], ["size, golden", SERIES.golden]];
  fill("rank", ranks, (value) => { state.rank = Number(value); });
  fill("task", [["all", ""], ...named(tasks)], (value) => { state.task = value; });
  fill("statistic", named(page.statistics), (value) => { state.statistic = value; });
  fill("colour", page.pair ? colours : colours.slice(1, 2), (value) => { state.colour = value === "gap" ? value : Number(value); });
  select("statistic", state.statistic);
  byId("rank-label").hidden = page.ranks.length < 2;
  byId("colour-label").hidden = !page.pair;
  byId("found").hidden = !page.findings.length;
  const onClick = {
    found: () => { byId("found").setAttribute("aria-pressed", (state.onlyFound = !state.onlyFound)); refresh(); },
    smaller: () => resizeRows("-"), larger: () => resizeRows("+"), fit: () => resizeRows("0"),
    "all-steps": () => zoom(0, BINS - 1),
  };
  for (const [id, act] of Object.entries(onClick)) byId(id).addEventListener("click", act);
  onWords(byId("search"), (words) => { state.words = words; refresh(); });
}

showHeader(page.verdict, `${page.title}: ${page.about}`);
controls();
findings();
lead();
onCells(byId("map"), byId("map-box"), {
  cellAt, tipOf, choose: ({ row, bin }) => moveTo(row, bin ?? state.cursor.bin), isDrag,
  zoom: (one, other) => zoom(one.bin, other.bin),
});
onKeys(byId("map"), keysOfMap);
byId("scroller").addEventListener("scroll", () => requestAnimationFrame(drawMap));
for (const change of ["resize", "themechange"]) window.addEventListener(change, drawAll);
onLink(openLink, openFirst);
