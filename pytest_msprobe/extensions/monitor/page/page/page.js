/* What is shown, and what the user changes of it. */

const FINDINGS_SHOWN = 500, ALL_RANKS = -1;
const state = {
  rank: 0, task: "", statistic: page.statistics.includes("norm") ? "norm" : page.statistics[0], colour: page.pair ? "gap" : SERIES.target, words: [], onlyFound: false,
  rowHeight: 0, from: 0, to: BINS, rows: [], cursor: { row: null, bin: null }, chosen: null,
};

function refresh() {
  const kept = state.rows[state.cursor.row] ?? state.chosen;
  const found = new Set(page.findings.filter((one) => isOfRank(one[FINDING.rank])).map((one) => rowName(one[FINDING.rank], one[FINDING.tensor])));
  const here = page.series.filter((one) => isOfRank(one[SERIES.rank]) && one[SERIES.statistic] === state.statistic);
  state.rows = here.filter((one) => {
    const tensor = page.tensors[one[SERIES.tensor]];
    if (state.task && tensor[TENSOR.task] !== state.task) return false;
    if (state.onlyFound && !found.has(rowName(one[SERIES.rank], one[SERIES.tensor]))) return false;
    tensor.text ??= `${tensor[TENSOR.task]} ${tensorText(tensor)}`.toLowerCase();
    return state.words.every((word) => tensor.text.includes(word));
  }).sort((a, b) => a[SERIES.tensor] - b[SERIES.tensor] || a[SERIES.rank] - b[SERIES.rank]);
  const isKept = (one) => one[SERIES.tensor] === kept[SERIES.tensor] && (state.rank !== ALL_RANKS || one[SERIES.rank] === kept[SERIES.rank]);
  const row = kept ? state.rows.findIndex(isKept) : -1;
  state.cursor.row = row < 0 ? null : row;
  state.chosen = kept;
  byId("count").textContent = `${state.rows.length} of ${here.length} ${state.rank === ALL_RANKS ? "rows, one for each tensor and rank" : "tensors"}`;
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
  const name = tensorText(page.tensors[series[SERIES.tensor]]);
  return state.rank === ALL_RANKS ? `${name}, ${page.ranks[series[SERIES.rank]]}` : name;
}

function findingsHere() {
  return page.findings.filter((one) => isOfRank(one[FINDING.rank]) && (!one[FINDING.statistic] || one[FINDING.statistic] === state.statistic));
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
  if (series && state.cursor.bin !== null) byId("cell").textContent = `${rowText(series)}, ${cellText(series, state.cursor.bin)}`;
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
  const own = (one) => one[SERIES.rank] === finding[FINDING.rank] && one[SERIES.tensor] === finding[FINDING.tensor];
  const series = page.series.find((one) => own(one) && one[SERIES.statistic] === finding[FINDING.statistic]) ?? page.series.find(own);
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

let pressed = null;

function onMap() {
  const map = byId("map");
  map.addEventListener("mousemove", (event) => {
    const cell = cellAt(event), tip = byId("tip");
    tip.hidden = !cell;
    if (!cell) return;
    const series = state.rows[cell.row], tensor = page.tensors[series[SERIES.tensor]];
    tip.textContent = `${tensor[TENSOR.task]}  ${rowText(series)}${cell.bin === null ? "" : `\n${cellText(series, cell.bin)}`}`;
    const box = byId("map-box").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.left = x < box.width / 2 ? `${x + 12}px` : "auto";
    tip.style.right = x < box.width / 2 ? "auto" : `${box.width - x + 12}px`;
    tip.style.top = `${Math.min(y + 12, box.height - 48)}px`;
  });
  map.addEventListener("mouseleave", () => { byId("tip").hidden = true; });
  map.addEventListener("mousedown", (event) => { pressed = cellAt(event); });
  map.addEventListener("mouseup", (event) => {
    const cell = cellAt(event), from = pressed;
    pressed = null;
    if (!cell) return;
    if (from && from.bin !== null && cell.bin !== null && isDrag(from.bin, cell.bin)) zoom(from.bin, cell.bin);
    else moveTo(cell.row, cell.bin ?? state.cursor.bin);
  });
  map.addEventListener("keydown", onKey);
}

function isDrag(one, other) {
  return Math.abs(one - other) > Math.max(1, (state.to - state.from) / 50);
}

function zoom(one, other) {
  [state.from, state.to] = [Math.min(one, other), Math.max(one, other) + 1];
  drawAll();
}

const MOVES = {
  ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
  PageUp: [-20, 0], PageDown: [20, 0], Home: [0, -Infinity], End: [0, Infinity],
};

function onKey(event) {
  const move = MOVES[event.key];
  if (move && state.rows.length) {
    const within = (value, low, high) => Math.max(low, Math.min(high, value));
    const row = within((state.cursor.row ?? 0) + move[0], 0, state.rows.length - 1);
    moveTo(row, within((state.cursor.bin ?? state.from) + move[1], state.from, state.to - 1));
  } else if (event.key === "+" || event.key === "-" || event.key === "0") {
    resizeRows(event.key);
  } else if (event.key === "Escape") {
    zoom(0, BINS - 1);
  } else if (event.key === "Enter") {
    byId("details").querySelector(".figure")?.focus();
  } else return;
  event.preventDefault();
}

function resizeRows(key) {
  state.rowHeight = key === "0" ? 0 : Math.max(2, Math.min(40, view.row * (key === "+" ? 1.5 : 1 / 1.5)));
  measure();
  if (state.cursor.row !== null) byId("scroller").scrollTop = state.cursor.row * view.row - byId("scroller").clientHeight / 2;
  drawMap();
}

/* The findings. */

function findings() {
  const total = page.findings.length;
  byId("findings").hidden = !total && !page.notes.length;
  byId("findings-title").textContent = total > FINDINGS_SHOWN ? `The first ${FINDINGS_SHOWN} of ${total} findings` : plural(total, "finding");
  byId("findings-body").replaceChildren(...page.findings.slice(0, FINDINGS_SHOWN).map((finding) => {
    const line = element("tr"), tensor = page.tensors[finding[FINDING.tensor]], open = element("button", tensor ? tensorText(tensor) : "");
    const place = [tensor?.[TENSOR.task], page.ranks.length > 1 ? page.ranks[finding[FINDING.rank]] : ""].filter(Boolean).join(", ");
    const name = element("td");
    name.append(open, element("span", place ? ` (${place})` : "", "skip"));
    open.addEventListener("click", () => goTo(finding));
    line.append(element("td", finding[FINDING.step] ?? ""), element("td", finding[FINDING.outcome], finding[FINDING.outcome]), name);
    line.append(...[FINDING.statistic, FINDING.rule, FINDING.message].map((field) => element("td", finding[field])));
    return line;
  }));
  byId("notes-list").replaceChildren(...page.notes.map((note) => element("li", note)));
}

function lead() {
  const first = page.findings[page.first], words = first?.[FINDING.message] ?? page.widest?.[WIDEST.words];
  if (!words) return;
  const box = element("p"), button = element("button", words, first?.[FINDING.outcome]);
  box.id = "lead";
  button.addEventListener("click", openFirst);
  box.append(button);
  byId("notes").append(box);
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
  const tensor = page.tensors[series[SERIES.tensor]];
  return [page.ranks[series[SERIES.rank]], tensor[TENSOR.task], tensorText(tensor), series[SERIES.statistic]].filter(Boolean).join("/");
}

function linkOf(series) {
  return state.cursor.bin === null ? fragmentOf(series) : `${fragmentOf(series)}@${page.starts[state.cursor.bin]}`;
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
  byId(id).replaceChildren(...entries.map(([name, value]) => {
    const option = element("option", name);
    option.value = String(value);
    return option;
  }));
  byId(id).addEventListener("change", (event) => { change(event.target.value); refresh(); });
}

function select(id, value) {
  byId(id).value = String(value);
}

function controls() {
  fill("rank", [...page.ranks.map((name, place) => [name, place]), ["all ranks", ALL_RANKS]], (value) => { state.rank = Number(value); });
  byId("rank-label").hidden = page.ranks.length < 2;
  const tasks = [...new Set(page.tensors.map((tensor) => tensor[TENSOR.task]))];
  fill("task", [["all", ""], ...tasks.map((task) => [task, task])], (value) => { state.task = value; });
  fill("statistic", page.statistics.map((name) => [name, name]), (value) => { state.statistic = value; });
  const colours = [["gap between the runs", "gap"], ["size, target", SERIES.target], ["size, golden", SERIES.golden]];
  fill("colour", page.pair ? colours : colours.slice(1, 2), (value) => { state.colour = value === "gap" ? value : Number(value); });
  byId("colour-label").hidden = !page.pair;
  byId("found").hidden = !page.findings.length;
  byId("found").addEventListener("click", () => {
    state.onlyFound = !state.onlyFound;
    byId("found").setAttribute("aria-pressed", String(state.onlyFound));
    refresh();
  });
  byId("smaller").addEventListener("click", () => resizeRows("-"));
  byId("larger").addEventListener("click", () => resizeRows("+"));
  byId("fit").addEventListener("click", () => resizeRows("0"));
  byId("all-steps").addEventListener("click", () => zoom(0, BINS - 1));
  onWords(byId("search"), (words) => { state.words = words; refresh(); });
}

function start() {
  showHeader(page.verdict, `${page.title}: ${page.about}`);
  controls();
  findings();
  lead();
  onMap();
  byId("scroller").addEventListener("scroll", () => requestAnimationFrame(drawMap));
  window.addEventListener("resize", drawAll);
  window.addEventListener("themechange", drawAll);
  onLink(openLink, openFirst);
}

start();
