// An API: [name, change, factor, worst by run]; a worst: [margin, outcome, record, judged, atMost] or null.
const API = { name: 0, change: 1, factor: 2, worst: 3 };
const WORST = { margin: 0, outcome: 1, record: 2, judged: 3, atMost: 4 };
const CHANGES = ["worse", "better", "new", "gone", ""];
const LEAST = 1e-4, MOST = 1e3;
const state = { words: [], shown: new Set(CHANGES), chosen: null };

function marginText(margin) {
  return typeof margin === "number" ? String(+margin.toPrecision(3)) : margin;
}

function worstText(worst) {
  return `${worst[WORST.atMost] ? "<= " : ""}${marginText(worst[WORST.margin])}`;
}

// 0 to 1 on a logarithmic scale.
function height(margin) {
  const size = Math.min(MOST, Math.max(LEAST, asNumber(margin)));
  return Math.log10(size / LEAST) / Math.log10(MOST / LEAST);
}

/* The table. */

function titles() {
  const runs = page.runs.map(([name, began, device], place) => {
    const title = element("th", `${place + 1}: ${began}`, "number");
    title.append(element("small", name));
    title.title = [name, device].filter(Boolean).join(", ");
    return title;
  });
  byId("titles").replaceChildren(element("th", "Change"), element("th", "API"), ...runs, element("th", "Factor", "number"));
}

function refresh() {
  const rows = page.apis.filter((api) => {
    api.text ??= [api[API.name], ...api[API.worst].map((one) => one?.[WORST.record] ?? "")].join(" ").toLowerCase();
    return state.shown.has(api[API.change]) && state.words.every((word) => api.text.includes(word));
  });
  byId("body").replaceChildren(...rows.map(line));
  byId("count").textContent = `${rows.length} of ${page.apis.length} ${page.of}`;
}

function line(api) {
  const made = element("tr", undefined, api === state.chosen ? "chosen" : ""), name = element("td"), open = element("button", api[API.name]);
  name.append(open);
  made.append(element("td", api[API.change], api[API.change]), name, ...api[API.worst].map(cell));
  const factor = ["worse", "better"].includes(api[API.change]) && typeof api[API.factor] === "number" ? `x${marginText(api[API.factor])}` : "";
  made.append(element("td", factor, "number"));
  made.addEventListener("click", () => choose(api));
  return made;
}

function cell(worst) {
  if (!worst) return element("td", "", "number");
  const passed = worst[WORST.outcome] === "pass", bar = element("i");
  const made = element("td", `${worstText(worst)}${passed ? "" : ` ${worst[WORST.outcome]}`}`, `number ${passed ? "" : worst[WORST.outcome]}`);
  made.title = `${worst[WORST.record]}, the worst of ${worst[WORST.judged]}`;
  bar.style.width = `${100 * height(worst[WORST.margin])}%`;
  made.append(bar);
  return made;
}

/* The chosen API. */

function choose(api) {
  state.chosen = api;
  refresh();
  const list = element("ol");
  api[API.worst].forEach((worst, place) => {
    const [, began] = page.runs[place], text = worst ? `${worstText(worst)} ${worst[WORST.outcome]}, ${worst[WORST.record]}, the worst of ${worst[WORST.judged]}` : "not judged";
    list.append(element("li", `${began}: ${text}`, worst && worst[WORST.outcome] !== "pass" ? worst[WORST.outcome] : ""));
  });
  byId("details").replaceChildren(element("h2", api[API.name]), chart(api), list);
}

function chart(api) {
  const made = svg("svg", { viewBox: "0 0 380 190", role: "img", "aria-label": `Margins of ${api[API.name]} by run` });
  const x = (place) => 48 + (320 * (place + 0.5)) / page.runs.length, y = (margin) => 170 - 160 * height(margin);
  for (let power = -4; power <= 3; power++) {
    made.append(svg("line", { class: power === 0 ? "limit" : "grid", x1: 42, x2: 374, y1: y(10 ** power), y2: y(10 ** power) }));
    made.append(svg("text", { x: 38, y: y(10 ** power) + 3, "text-anchor": "end" }, power === 0 ? "limit 1" : `1e${power}`));
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
  document.title = byId("title").textContent = page.title;
  byId("notes").replaceChildren(...page.notes.map((note) => element("li", note)));
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
  byId("search").addEventListener("input", (event) => {
    state.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    refresh();
  });
  titles();
  refresh();
  if (page.apis.length) choose(page.apis[0]);
}

start();
