// An API: [name, change, factor, worst by run, words of a command]; a worst: [margin, outcome, record, judged, atMost] or null.
const API = { name: 0, change: 1, factor: 2, worst: 3, command: 4 };
const WORST = { margin: 0, outcome: 1, record: 2, judged: 3, atMost: 4 };
const CHANGES = ["worse", "new", "better", "gone", ""];
// A chart begins here: what is smaller is far from any limit. It ends no lower than the other.
const LEAST_POWER = -4, LEAST_END = 1;
const state = { words: [], shown: new Set(CHANGES) };

function marginText(margin) {
  if (typeof margin !== "number") return margin;
  return margin >= 1e4 ? margin.toExponential(1).replace("e+", "e") : String(+margin.toPrecision(3));
}

function worstText(worst) {
  return `${worst[WORST.atMost] ? "<= " : ""}${marginText(worst[WORST.margin])}`;
}

/* The table. */

const table = makeTable(byId("scroller"), [
  { title: "Change", width: 74, of: (api) => api[API.change], by: (api) => -CHANGES.indexOf(api[API.change]), look: (api) => api[API.change] },
  { title: page.of === "APIs" ? "API" : "Item", width: 230, narrow: 180, grow: true, name: true, of: (api) => api[API.name] },
  { title: "Factor", width: 90, number: true, of: factorText, by: (api) => (factorText(api) ? api[API.factor] : "") },
  ...page.runs.map(([, began], place) => ({
    title: `${place + 1}: ${began}`, width: 168, number: true, of: (api) => cellText(api[API.worst][place]),
    by: (api) => api[API.worst][place]?.[WORST.margin] ?? "", look: (api) => outcomeOf(api[API.worst][place]),
  })),
], { open: choose, label: page.of, name: "apis" });

function factorText(api) {
  return ["worse", "better"].includes(api[API.change]) && typeof api[API.factor] === "number" ? `x${marginText(api[API.factor])}` : "";
}

function outcomeOf(worst) {
  return worst && worst[WORST.outcome] !== "pass" ? worst[WORST.outcome] : "";
}

function cellText(worst) {
  return worst ? [worstText(worst), outcomeOf(worst)].filter(Boolean).join(" ") : "";
}

function refresh() {
  const rows = page.apis.filter((api) => {
    api.text ??= [api[API.name], ...api[API.worst].map((one) => one?.[WORST.record] ?? "")].join(" ").toLowerCase();
    return state.shown.has(api[API.change]) && state.words.every((word) => api.text.includes(word));
  });
  table.show(rows);
  byId("count").textContent = `${rows.length} of ${page.apis.length} ${page.of}`;
}

/* The chosen API. */

function open(api) {
  if (!api) return false;
  table.scrollTo(api);
  table.choose(api);
  return true;
}

function choose(api) {
  const list = element("ol");
  api[API.worst].forEach((worst, place) => {
    const [name, began, device] = page.runs[place], item = element("li", undefined, outcomeOf(worst));
    item.append(`${began}: ${worst ? `${worstText(worst)} ${worst[WORST.outcome]}, ${worst[WORST.record]}, the worst of ${worst[WORST.judged]}` : "not judged"}`);
    item.title = [name, device].filter(Boolean).join(", ");
    list.append(item);
  });
  const again = api[API.command].length ? [["Run the worst record of the last run again", api[API.command]]] : [];
  byId("details").replaceChildren(element("h2", api[API.name]), linkButton(api[API.name]), chart(api), list, ...nextSteps({}, again));
  openPane("details-box");
  setFragment(api[API.name]);
}

function chart(api) {
  const made = svg("svg", { viewBox: "0 0 380 190", role: "img", "aria-label": `Margins of ${api[API.name]} by run` });
  const margins = api[API.worst].map((worst) => worst && asNumber(worst[WORST.margin])), isInfinite = margins.includes(Infinity);
  const finite = margins.filter((margin) => margin !== null && Number.isFinite(margin) && margin > 0).map(Math.log10);
  const last = Math.max(LEAST_END, ...finite.map(Math.ceil)), every = Math.ceil((last - LEAST_POWER) / 8);
  // Infinity has a line of its own, above all numbers.
  const top = isInfinite ? 26 : 10, powerOf = (margin) => Math.max(LEAST_POWER, Math.log10(margin));
  const x = (place) => 48 + (320 * (place + 0.5)) / page.runs.length;
  const y = (margin) => (asNumber(margin) === Infinity ? 10 : 170 - ((170 - top) * (powerOf(asNumber(margin)) - LEAST_POWER)) / (last - LEAST_POWER));
  if (isInfinite) made.append(svg("text", { x: 38, y: 13, "text-anchor": "end" }, "inf"));
  for (let power = LEAST_POWER; power <= last; power++) {
    if (power % every) continue;
    made.append(svg("line", { class: power === 0 ? "limit" : "grid", x1: 42, x2: 374, y1: y(10 ** power), y2: y(10 ** power) }));
    made.append(svg("text", { x: 38, y: y(10 ** power) + 3, "text-anchor": "end" }, power === 0 ? "limit 1" : powerText(power)));
  }
  const points = api[API.worst].map((worst, place) => worst && [x(place), y(worst[WORST.margin]), worst, place]).filter(Boolean);
  made.append(svg("polyline", { class: "curve", points: points.map((point) => point.slice(0, 2).join(",")).join(" ") }));
  for (const [at, level, worst, place] of points) {
    const point = svg("circle", { cx: at, cy: level, r: 4, class: worst[WORST.outcome] });
    point.append(svg("title", {}, `${page.runs[place][1]}: ${worstText(worst)} ${worst[WORST.outcome]}`));
    made.append(point);
  }
  page.runs.forEach((_, place) => made.append(svg("text", { x: x(place), y: 186, "text-anchor": "middle" }, place + 1)));
  return made;
}

function start() {
  showHeader(page.title, "The largest share of a limit that a record of an API used up, run by run: 0 is exact, 1 is at the limit.", page.notes);
  for (const change of CHANGES) {
    const count = page.apis.filter((api) => api[API.change] === change).length, button = element("button", `${change || "as before"} ${count}`, change);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const on = !state.shown.delete(change);
      if (on) state.shown.add(change);
      button.setAttribute("aria-pressed", String(on));
      refresh();
    });
    byId("changes").append(button, " ");
  }
  onWords(byId("search"), (words) => { state.words = words; refresh(); });
  refresh();
  onLink((fragment) => open(page.apis.find((api) => api[API.name] === fragment)), () => open(page.apis[0]));
}

start();
