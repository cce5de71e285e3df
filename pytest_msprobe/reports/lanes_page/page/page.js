const state = { words: [], lane: -1, shown: new Set(OUTCOMES) };
const ranked = allCalls.slice().sort((a, b) => severity(b) - severity(a) || beginnings.has(b) - beginnings.has(a) || columnOf[a] - columnOf[b] || laneOf[a] - laneOf[b]);

const table = makeTable(byId("scroller"), [
  { title: "Result", width: 66, of: (call) => word("outcome", call), by: severity, look: (call) => word("outcome", call) },
  { title: "Call", width: 250, narrow: 160, name: true, of: (call) => nameOf[call] },
  { title: "Why", width: 260, grow: true, of: (call) => word("why", call) },
  { title: page.kindTitle, width: 110, of: (call) => word("kind", call) },
  { title: "Rank", width: 120, of: (call) => page.lanes[laneOf[call]] },
  { title: "#", width: 60, number: true, of: (call) => columnOf[call] },
], { open: show, label: "Calls", name: "calls" });

function refresh() {
  const rows = ranked.filter((call) => state.shown.has(word("outcome", call)) && (state.lane < 0 || laneOf[call] === state.lane) && matches(call));
  byId("count").textContent = `${rows.length} of ${plural(allCalls.length, "call")}`;
  table.show(rows);
}

const texts = [];
function matches(call) {
  if (!state.words.length) return true;
  const text = texts[call] ??= [nameOf[call], word("why", call), word("kind", call), page.lanes[laneOf[call]]].join(" ").toLowerCase();
  return state.words.every((one) => text.includes(one));
}

function sentenceOf(call) {
  return [`${page.lanes[laneOf[call]]}, ${nameOf[call]}`, word("kind", call) || word("outcome", call), word("why", call)].filter(Boolean).join(": ");
}

/* One call in full. */

function show(call) {
  const box = byId("details");
  box.replaceChildren(...sheetOf(call));
  box.scrollTop = 0;
  openPane("details-box");
  byId("cell").textContent = sentenceOf(call);
  setFragment(fragmentOf(call));
  bringIntoGrid(call);
  drawGrid();
}

function sheetOf(call) {
  const outcome = word("outcome", call), facts = [["rank", page.lanes[laneOf[call]]], ["result", outcome || "not judged", outcome], [page.kindTitle.toLowerCase(), word("kind", call)], ["why", word("why", call)]];
  const parts = [element("h2", nameOf[call]), linkButton(fragmentOf(call))];
  if (beginnings.has(call)) parts.push(element("p", "It begins here.", "fail"));
  if (severity(call) === MISSING) parts.push(element("p", "This rank has no such call."));
  const [lane, record] = page.items[call] ?? [laneOf[call], nameOf[call]];
  parts.push(factsList(facts), ...(outcome && severity(call) !== MISSING ? nextSteps({ dump: page.dumps[lane], record }) : []));
  for (const [name, text] of page.details[call] ?? []) parts.push(element("h3", name), element("pre", text));
  return [...parts, ...otherCalls("Gave it to", page.arrows.filter(([from]) => from === call).map(([, to]) => to)), ...otherCalls("Was given it by", page.arrows.filter(([, to]) => to === call).map(([from]) => from)),
    ...otherCalls("Together with", (joinsOf.get(call) ?? []).filter((other) => other !== call))];
}

function otherCalls(title, calls) {
  if (!calls.length) return [];
  const list = element("ul", undefined, "others");
  for (const call of calls) {
    const item = element("li"), button = element("button", `${page.lanes[laneOf[call]]}, ${nameOf[call]}`, word("outcome", call));
    button.addEventListener("click", () => open(call));
    item.append(button);
    list.append(item);
  }
  return [element("h3", title), list];
}

function open(call) {
  if (!table.rows().includes(call)) widen();
  table.scrollTo(call);
  table.choose(call);
}

/* Show everything again. */
function widen() {
  Object.assign(state, { words: [], lane: -1 });
  byId("search").value = "";
  byId("lane").value = "-1";
  state.showAll();
  refresh();
}

function nextWrong(step) {
  const wrong = allCalls.filter((call) => severity(call) >= MISSING).sort((a, b) => columnOf[a] - columnOf[b] || laneOf[a] - laneOf[b]);
  const at = wrong.indexOf(table.chosen()), next = wrong[(at + step + wrong.length) % wrong.length];
  if (next !== undefined) open(next);
}

function legend() {
  const met = new Set(page.words.outcome);
  byId("legend").replaceChildren(...OUTCOMES.filter((outcome) => met.has(outcome)).map((outcome) => {
    const entry = element("span"), sample = element("i", undefined, outcome || "line");
    if (!outcome) sample.style.color = "var(--line)";
    entry.append(sample, OUTCOME_WORDS[outcome]);
    return entry;
  }), ...(page.begins.length ? [element("span", "▼ it begins here", "fail")] : []), ...linesLeftOut());
}

function linesLeftOut() {
  const count = Math.max(0, page.arrows.length - MOST_LINES) + Math.max(0, wrongJoins.length - MOST_LINES);
  return count ? [element("span", `${plural(count, "line")} left out: an open call names its own`)] : [];
}

function start() {
  showHeader(page.title, page.about, page.notes);
  const counts = {};
  for (const call of allCalls) counts[word("outcome", call)] = (counts[word("outcome", call)] ?? 0) + 1;
  state.showAll = outcomeButtons(byId("outcomes"), OUTCOMES.filter(Boolean), counts, state.shown, refresh);
  byId("lane").replaceChildren(...["all ranks", ...page.lanes].map((name, place) => {
    const option = element("option", name);
    option.value = String(place - 1);
    return option;
  }));
  byId("lane").addEventListener("change", (event) => { state.lane = Number(event.target.value); refresh(); });
  byId("lane").hidden = page.lanes.length < 2;
  onWords(byId("search"), (words) => { state.words = words; refresh(); });
  byId("wider").addEventListener("click", () => zoomGrid(0.5));
  byId("narrower").addEventListener("click", () => zoomGrid(2));
  byId("whole").addEventListener("click", () => zoomGrid(Infinity));
  window.addEventListener("resize", drawGrid);
  window.addEventListener("themechange", drawGrid);
  onGrid();
  legend();
  refresh();
  const first = page.begins[0] ?? ranked.find((call) => severity(call) >= SEVERITY.warn);
  const nothing = element("p", "Nothing is wrong. Choose a call to see what is known of it.", "soft");
  onLink((fragment) => {
    const linked = linkedCall(fragment);
    if (linked >= 0) open(linked);
    return linked >= 0;
  }, () => {
    if (first !== undefined) return open(first);
    byId("details").replaceChildren(nothing);
    drawGrid();
  });
}

start();
