/* What is shown, and what the user changes of it. */

const ALL_RANKS = "-1";
const state = { words: [], rows: [], chosen: null };
const shown = (id) => byId(id).value;
const isOfRank = (rank) => shown("rank") === ALL_RANKS || rank === Number(shown("rank"));

function refresh() {
  const { chosen, words } = state, task = shown("task"), statistic = shown("statistic");
  const isOfAll = shown("rank") === ALL_RANKS;
  const here = page.series.filter((one) => isOfRank(one.rank) && one.statistic === statistic);
  state.rows = here.filter((one) => {
    const { tensor } = one;
    if ((task && tensor.task !== task) || (byId("found").checked && !findingsOf(one).length)) return false;
    tensor.text ??= `${tensor.task} ${tensorText(tensor)}`.toLowerCase();
    return words.every((word) => tensor.text.includes(word));
  }).sort((a, b) => a.tensor.at - b.tensor.at || a.rank - b.rank);
  const isKeptRank = (one) => !isOfAll || one.rank === chosen.rank;
  const row = state.rows.findIndex((one) => one.tensor === chosen?.tensor && isKeptRank(one));
  state.chosen = state.rows[row] ?? chosen;
  heatMap.cursor.row = row < 0 ? null : row;
  const what = isOfAll ? "rows, one for each tensor and rank" : "tensors";
  byId("count").textContent = `${state.rows.length} of ${here.length} ${what}`;
  drawLegend();
  heatMap.show(state.rows.length);
  drawDetails();
}

function rowText({ tensor, rank }) {
  return `${tensorText(tensor)}${shown("rank") === ALL_RANKS ? `, ${page.ranks[rank]}` : ""}`;
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
  if (shown("rank") !== ALL_RANKS) byId("rank").value = series.rank;
  byId("statistic").value = series.statistic;
  state.chosen = series;
  heatMap.cursor.column = bin;
  refresh();
  if (heatMap.cursor.row === null) {
    byId("task").value = byId("search").value = "";
    byId("found").checked = false;
    state.words = [];
    refresh();
  }
  heatMap.goTo(heatMap.cursor);
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
  makeTable(byId("found-scroller"), page.findings, [
    { title: "Step", number: true, of: (one) => one.step },
    { title: "Result", of: (one) => one.outcome, look: (one) => one.outcome },
    { title: "Tensor", name: true, of: findingName },
    { title: "Statistic", of: (one) => one.statistic },
    { title: "Rule", of: (one) => one.rule },
    { title: "Finding", grow: true, of: (one) => one.message },
  ], { open: goTo, label: "Findings" });
}

function findingName({ rank, tensor }) {
  const place = [tensor?.task, page.ranks.length > 1 ? page.ranks[rank] : ""].filter(Boolean).join(", ");
  return `${tensor ? tensorText(tensor) : ""}${place ? ` (${place})` : ""}`;
}

function lead() {
  const [first] = page.findings, words = first?.message ?? page.widest?.words;
  if (words) byId("notes").append(element("p", button(words, openFirst, first?.outcome), "", { id: "lead" }));
}

/* Show the first finding, or else where the runs are farthest apart, or else the first series. */
function openFirst() {
  const [first] = page.findings, { widest } = page, isChosen = ({ statistic }) => statistic === shown("statistic");
  if (first?.tensor) goTo(first);
  else if (widest) show(page.series[widest.series], binOf(widest.step));
  else show(page.series.find(isChosen), null);
}

/* The end of an address that opens the curves of a series, at a step where one was chosen. */

const fragmentOf = (series) => [rankOf(series), itemOf(series)].filter(Boolean).join("/");

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

function controls() {
  const tasks = [...new Set(page.tensors.map(({ task }) => task))], sizes = [["size, target", "target"]];
  const both = [["gap between the runs", "gap"], ...sizes, ["size, golden", "golden"]];
  const lists = {
    rank: [...page.ranks.map((name, place) => [name, place]), ["all ranks", ALL_RANKS]],
    task: [["all", ""], ...tasks.map((name) => [name, name])], colour: page.pair ? both : sizes,
    statistic: page.statistics.map((name) => [name, name]),
  };
  for (const [id, entries] of Object.entries(lists)) choices(byId(id), entries, refresh);
  if (page.statistics.includes("norm")) byId("statistic").value = "norm";
  byId("rank-label").hidden = page.ranks.length < 2;
  byId("colour-label").hidden = !page.pair;
  byId("found-label").hidden = !page.findings.length;
  byId("found").addEventListener("change", refresh);
  byId("axis-label").hidden = !page.times;
  for (const id of page.times ? ["smoothing", "axis"] : ["smoothing"]) {
    byId(id).value = remembered(`monitor.${id}`, shown(id));
    byId(id).addEventListener("change", () => remember(`monitor.${id}`, shown(id)));
  }
  for (const id of ["smoothing", "axis", "scale"]) byId(id).addEventListener("change", drawDetails);
  byId("download").addEventListener("click", download);
  byId("count").before(heatMap.buttons());
  onWords(byId("search"), (words) => { state.words = words; refresh(); });
}

showHeader(page.verdict, `${page.title}: ${page.about}`);
controls();
findings();
lead();
for (const change of ["resize", "themechange"]) window.addEventListener(change, drawDetails);
onLink(openLink, openFirst);
