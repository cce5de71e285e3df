/* What is shown, and what the user changes of it. */

const ALL_RANKS = -1;
const state = {
  rank: 0, task: "", statistic: page.statistics.includes("norm") ? "norm" : page.statistics[0],
  colour: page.pair ? "gap" : "target", words: [], onlyFound: false, rows: [], chosen: null,
};

function refresh() {
  const here = page.series.filter((one) => isOfRank(one.rank) && one.statistic === state.statistic), { chosen } = state;
  state.rows = here.filter((one) => {
    const { tensor } = one;
    if (state.task && tensor.task !== state.task) return false;
    if (state.onlyFound && !findingsOf(one).length) return false;
    tensor.text ??= `${tensor.task} ${tensorText(tensor)}`.toLowerCase();
    return state.words.every((word) => tensor.text.includes(word));
  }).sort((a, b) => a.tensor.at - b.tensor.at || a.rank - b.rank);
  const isKeptRank = (one) => state.rank !== ALL_RANKS || one.rank === chosen.rank;
  const row = state.rows.findIndex((one) => one.tensor === chosen?.tensor && isKeptRank(one));
  state.chosen = state.rows[row] ?? chosen;
  heatMap.cursor.row = row < 0 ? null : row;
  const what = state.rank === ALL_RANKS ? "rows, one for each tensor and rank" : "tensors";
  byId("count").textContent = `${state.rows.length} of ${here.length} ${what}`;
  drawLegend();
  heatMap.show(state.rows.length);
  drawDetails();
}

function isOfRank(rank) {
  return state.rank === ALL_RANKS || rank === state.rank;
}

function rowText({ tensor, rank }) {
  return state.rank === ALL_RANKS ? `${tensorText(tensor)}, ${page.ranks[rank]}` : tensorText(tensor);
}

function textOf({ row, column }) {
  const series = state.rows[row], name = `${rowText(series)} (${series.tensor.task})`;
  return column === null ? name : `${name}, ${cellText(series, column)}`;
}

/* Choosing a cell, a series or a finding. */

function choose({ row, column }) {
  const isOther = state.chosen !== state.rows[row];
  state.chosen = state.rows[row] ?? state.chosen;
  heatMap.goTo({ row, column });
  if (isOther) drawDetails();
  else showCursor();
}

/* Show a series, with all filters taken back where they hide it. */
function show(series, bin = heatMap.cursor.column) {
  if (state.rank !== ALL_RANKS) select("rank", (state.rank = series.rank));
  select("statistic", (state.statistic = series.statistic));
  state.chosen = series;
  heatMap.cursor.column = bin;
  refresh();
  if (heatMap.cursor.row === null) {
    clearFilters();
    refresh();
  }
  heatMap.goTo(heatMap.cursor);
}

function clearFilters() {
  select("task", (state.task = ""));
  byId("search").value = "";
  state.words = [];
  state.onlyFound = false;
  byId("found").setAttribute("aria-pressed", "false");
}

function goTo(finding) {
  const { rank, tensor, statistic, step } = finding;
  const own = page.series.filter((one) => one.rank === rank && one.tensor === tensor);
  const series = own.find((one) => one.statistic === statistic) ?? own[0];
  if (series) show(series, step === null ? null : binOf(step));
}

/* The findings. */

function findings() {
  byId("findings").hidden = !page.findings.length && !page.notes.length;
  byId("notes-list").append(...page.notes.map((note) => element("li", note)));
  makeTable(byId("found-scroller"), [
    { title: "Step", width: 64, number: true, of: (one) => one.step },
    { title: "Result", width: 66, of: (one) => one.outcome, look: (one) => one.outcome },
    { title: "Tensor", width: 340, narrow: 200, name: true, of: findingName },
    { title: "Statistic", width: 80, of: (one) => one.statistic },
    { title: "Rule", width: 90, of: (one) => one.rule },
    { title: "Finding", width: 320, grow: true, of: (one) => one.message },
  ], { open: goTo, label: "Findings", name: "findings" }).show(page.findings);
}

function findingName({ rank, tensor }) {
  const place = [tensor?.task, page.ranks.length > 1 ? page.ranks[rank] : ""].filter(Boolean).join(", ");
  return `${tensor ? tensorText(tensor) : ""}${place ? ` (${place})` : ""}`;
}

function lead() {
  const [first] = page.findings, words = first?.message ?? page.widest?.words;
  if (words) byId("notes").append(element("p", button(words, openFirst, first?.outcome), "", { id: "lead" }));
}

/* Show the first finding, or else where the runs are farthest apart. */
function openFirst() {
  const [first] = page.findings, { widest } = page;
  if (first) goTo(first);
  else if (widest) show(page.series[widest.series], binOf(widest.step));
  if (state.chosen) return;
  refresh();
  choose({ row: 0, column: null });
}

/* The end of an address that opens the curves of a series, at a step where one was chosen. */

function fragmentOf(series) {
  return [rankOf(series), itemOf(series)].filter(Boolean).join("/");
}

function linkOf(series) {
  const { column } = heatMap.cursor;
  return `${fragmentOf(series)}${column === null ? "" : `@${page.starts[column]}`}`;
}

function openLink(fragment) {
  const named = (name) => page.series.find((series) => fragmentOf(series) === name);
  // A name may end like a step.
  const whole = named(fragment), [name, step] = fragment.split(/@(\d+)$/), series = whole ?? named(name);
  if (series) show(series, whole ? heatMap.cursor.column : binOf(Number(step)));
  return Boolean(series);
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
  const tasks = [...new Set(page.tensors.map((tensor) => tensor.task))];
  const colours = [["gap between the runs", "gap"], ["size, target", "target"], ["size, golden", "golden"]];
  fill("rank", ranks, (value) => { state.rank = Number(value); });
  fill("task", [["all", ""], ...named(tasks)], (value) => { state.task = value; });
  fill("statistic", named(page.statistics), (value) => { state.statistic = value; });
  fill("colour", page.pair ? colours : colours.slice(1, 2), (value) => { state.colour = value; });
  select("statistic", state.statistic);
  byId("rank-label").hidden = page.ranks.length < 2;
  byId("colour-label").hidden = !page.pair;
  byId("found").hidden = !page.findings.length;
  byId("found").addEventListener("click", () => {
    byId("found").setAttribute("aria-pressed", (state.onlyFound = !state.onlyFound));
    refresh();
  });
  byId("count").before(heatMap.buttons());
  onWords(byId("search"), (words) => { state.words = words; refresh(); });
}

showHeader(page.verdict, `${page.title}: ${page.about}`);
controls();
findings();
lead();
for (const change of ["resize", "themechange"]) window.addEventListener(change, drawDetails);
onLink(openLink, openFirst);
