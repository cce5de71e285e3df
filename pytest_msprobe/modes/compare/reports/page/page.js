const OUTCOMES = ["fail", "warn", "pass", "skip"];
const SEVERITY = { skip: 0, pass: 1, warn: 2, fail: 3 };
const ROW_HEIGHT = 24;

// A row: [call, name, dtype, shape, outcome, cause, messages, metrics, target statistics, golden statistics, worst index, histogram]
const ROW = { call: 0, name: 1, dtype: 2, shape: 3, outcome: 4, cause: 5, messages: 6, metrics: 7, target: 8, golden: 9, worst: 10, histogram: 11 };
// A call: [record, golden, pair, order, outcome, cause, reason, module, stack, error]
const CALL = { record: 0, golden: 1, pair: 2, order: 3, outcome: 4, cause: 5, reason: 6, module: 7, stack: 8, error: 9 };

const columns = [
  { title: "#", width: 64, number: true, of: (row) => page.calls[row[ROW.call]][CALL.order] },
  { title: "Value", width: 420, of: (row) => row[ROW.name] },
  { title: "Result", width: 70, of: (row) => row[ROW.outcome], by: (row) => SEVERITY[row[ROW.outcome]] },
  { title: "Cause", width: 80, of: (row) => row[ROW.cause] },
  { title: "Dtype", width: 130, of: (row) => row[ROW.dtype] },
  { title: "Shape", width: 130, of: (row) => row[ROW.shape] },
  ...page.metrics.map((title, place) => ({ title, width: 130, number: true, of: (row) => row[ROW.metrics][place] })),
  { title: "Message", width: 520, of: (row) => row[ROW.messages] },
];
const state = { shown: new Set(OUTCOMES), pair: -1, words: [], node: null, sort: null, down: true, visible: [], chosen: null };

/* Which rows are shown, and in which order. */

function refresh() {
  const rows = page.rows;
  const visible = [];
  for (let place = 0; place < rows.length; place++) {
    const row = rows[place], call = page.calls[row[ROW.call]];
    if (!state.shown.has(row[ROW.outcome])) continue;
    if (state.pair >= 0 && call[CALL.pair] !== state.pair) continue;
    if (state.node && !(call.path + "/").startsWith(state.node + "/")) continue;
    if (state.words.length && !matches(row, call)) continue;
    visible.push(place);
  }
  if (state.sort) {
    const key = state.sort.by ?? state.sort.of, sign = state.down ? -1 : 1;
    const keys = new Map(visible.map((place) => [place, asNumber(key(rows[place]))]));
    visible.sort((a, b) => compareKeys(keys.get(a), keys.get(b), sign) || a - b);
  }
  state.visible = visible;
  byId("count").textContent = `${visible.length} of ${rows.length} values`;
  byId("scroller").scrollTop = 0;
  draw();
}

function matches(row, call) {
  row.text ??= [row[ROW.name], row[ROW.dtype], row[ROW.shape], row[ROW.messages], row[ROW.cause], call[CALL.golden], call[CALL.module]].join(" ").toLowerCase();
  return state.words.every((word) => row.text.includes(word));
}

function compareKeys(a, b, sign) {
  const missingA = a === null || a === undefined || a === "", missingB = b === null || b === undefined || b === "";
  if (missingA || missingB) return missingA - missingB;
  if (typeof a === "number" && typeof b === "number") return sign * (a < b ? -1 : a > b ? 1 : 0);
  return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
}

/* The table: only what is in sight is in the document. */

function draw() {
  const scroller = byId("scroller"), body = byId("body");
  const first = Math.max(0, Math.floor(scroller.scrollTop / ROW_HEIGHT) - 10);
  const last = Math.min(state.visible.length, first + Math.ceil(scroller.clientHeight / ROW_HEIGHT) + 20);
  const parts = [gap(first * ROW_HEIGHT)];
  for (let place = first; place < last; place++) parts.push(line(state.visible[place]));
  parts.push(gap((state.visible.length - last) * ROW_HEIGHT));
  body.replaceChildren(...parts);
}

function gap(height) {
  const row = element("tr", undefined, "gap"), cell = element("td");
  cell.style.height = `${height}px`;
  cell.colSpan = columns.length;
  row.append(cell);
  return row;
}

function line(place) {
  const row = page.rows[place], made = element("tr");
  if (place === state.chosen) made.className = "chosen";
  for (const column of columns) {
    const value = column.of(row);
    const cell = element("td", column.number ? numberText(value) : value ?? "", column.number ? "number" : "");
    if (column.title === "Result") cell.className = value;
    cell.title = cell.textContent;
    made.append(cell);
  }
  made.addEventListener("click", () => choose(place));
  return made;
}

function titles() {
  byId("widths").replaceChildren(...columns.map((column) => {
    const col = element("col");
    col.style.width = `${column.width}px`;
    return col;
  }));
  document.querySelector("table").style.width = `${columns.reduce((sum, column) => sum + column.width, 0)}px`;
  byId("titles").replaceChildren(...columns.map((column) => {
    const arrow = state.sort === column ? (state.down ? " ▼" : " ▲") : "";
    const title = element("th", column.title + arrow, column.number ? "number" : "");
    title.setAttribute("aria-sort", state.sort === column ? (state.down ? "descending" : "ascending") : "none");
    title.addEventListener("click", () => {
      // A third click gives the execution order back.
      if (state.sort !== column) [state.sort, state.down] = [column, true];
      else if (state.down) state.down = false;
      else state.sort = null;
      titles();
      refresh();
    });
    return title;
  }));
}

/* One row in full. */

function choose(place) {
  state.chosen = place;
  const row = page.rows[place], call = page.calls[row[ROW.call]], box = byId("details");
  const close = element("button", "Close", "close");
  close.addEventListener("click", () => { box.hidden = true; state.chosen = null; draw(); });
  const head = element("h2", row[ROW.name]);
  const facts = element("dl");
  const fact = (name, value) => { if (value !== "" && value !== null && value !== undefined) facts.append(element("dt", name), element("dd", value)); };
  fact("result", row[ROW.outcome] + (row[ROW.cause] ? `, ${row[ROW.cause]}` : ""));
  fact("golden call", call[CALL.golden] ?? "none");
  fact("module", call[CALL.module]);
  fact("dtype", row[ROW.dtype]);
  fact("shape", row[ROW.shape]);
  fact("worst element", row[ROW.worst]);
  page.metrics.forEach((title, at) => fact(title, numberText(row[ROW.metrics][at])));
  ["max", "min", "mean", "norm"].forEach((title, at) => {
    const [target, golden] = [row[ROW.target], row[ROW.golden]].map((one) => (one ? numberText(one[at]) : ""));
    if (target !== "" || golden !== "") fact(title, `${target} against ${golden}`);
  });
  box.replaceChildren(close, head, facts);
  if (row[ROW.messages]) box.append(element("pre", row[ROW.messages]));
  if (call[CALL.reason]) box.append(element("pre", call[CALL.reason]));
  if (row[ROW.histogram].length) box.append(element("div", "elements by relative error"), histogram(row[ROW.histogram]));
  if (call[CALL.stack] >= 0) box.append(element("div", "called at"), element("pre", page.stacks[call[CALL.stack]]));
  if (inGraphs.has(row[ROW.call])) {
    const button = element("button", "show in the graph");
    button.addEventListener("click", () => showInGraph(row[ROW.call]));
    facts.before(button);
  }
  box.hidden = false;
  draw();
}

function histogram(counts) {
  const NS = "http://www.w3.org/2000/svg", svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", `0 0 ${counts.length * 20} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  const top = Math.log10(1 + Math.max(...counts));
  counts.forEach((count, place) => {
    const height = top ? (80 * Math.log10(1 + count)) / top : 0;
    const bar = document.createElementNS(NS, "rect"), label = document.createElementNS(NS, "text"), hint = document.createElementNS(NS, "title");
    for (const [name, value] of Object.entries({ x: place * 20 + 2, y: 85 - height, width: 16, height })) bar.setAttribute(name, value);
    hint.textContent = `${page.bins[place]}: ${count}`;
    label.setAttribute("x", place * 20 + 10);
    label.setAttribute("y", 96);
    label.textContent = page.bins[place];
    bar.append(hint);
    svg.append(bar, label);
  });
  return svg;
}

/* Modules, each with the worst that came of what ran in it. */

function tree() {
  const root = { children: new Map(), worst: "skip", calls: 0, wrong: 0 };
  for (const call of page.calls) {
    let node = root;
    for (const part of call.path.split("/")) {
      if (!node.children.has(part)) node.children.set(part, { children: new Map(), worst: "skip", calls: 0, wrong: 0 });
      node = node.children.get(part);
      node.calls++;
      if (call[CALL.outcome] === "fail") node.wrong++;
      if (SEVERITY[call[CALL.outcome]] > SEVERITY[node.worst]) node.worst = call[CALL.outcome];
    }
  }
  const all = element("div", "everything", "leaf chosen");
  all.addEventListener("click", () => chooseNode(null, all));
  byId("tree").replaceChildren(all, ...branches(root, ""));
}

function branches(node, path) {
  return [...node.children].map(([name, child]) => {
    const at = path ? `${path}/${name}` : name;
    const text = element("span", `${name} (${child.wrong ? `${child.wrong} of ` : ""}${child.calls})`), dot = element("span", undefined, `dot ${child.worst}`);
    dot.title = child.worst;
    if (!child.children.size) {
      const leaf = element("div", undefined, "leaf");
      leaf.append(dot, text);
      leaf.addEventListener("click", () => chooseNode(at, leaf));
      return leaf;
    }
    const made = element("details"), head = element("summary");
    head.append(dot, text);
    text.addEventListener("click", (event) => { event.preventDefault(); chooseNode(at, head); });
    made.append(head);
    made.addEventListener("toggle", () => { if (made.open && made.childElementCount === 1) made.append(...branches(child, at)); });
    made.open = child.worst === "fail" && path.split("/").length < 3;
    return made;
  });
}

function chooseNode(path, at) {
  byId("tree").querySelectorAll(".chosen").forEach((one) => one.classList.remove("chosen"));
  at.classList.add("chosen");
  state.node = path;
  refresh();
}

/* The error of every call along execution order, on a logarithmic scale. */

const LOWEST = -9, HIGHEST = 1;
const plotted = [];

function plot() {
  const canvas = byId("plot"), box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  canvas.width = box.width * ratio;
  canvas.height = box.height * ratio;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.body);
  pen.scale(ratio, ratio);
  const left = 40, width = box.width - left - 8, height = box.height - 16;
  pen.font = "10px system-ui";
  pen.fillStyle = style.getPropertyValue("--soft");
  pen.strokeStyle = style.getPropertyValue("--line");
  for (let power = LOWEST; power <= HIGHEST; power += 2) {
    const y = 6 + (height * (HIGHEST - power)) / (HIGHEST - LOWEST);
    pen.fillText(`1e${power}`, 6, y + 3);
    pen.beginPath();
    pen.moveTo(left, y);
    pen.lineTo(left + width, y);
    pen.stroke();
  }
  plotted.length = 0;
  const calls = page.calls.filter((call) => state.pair < 0 || call[CALL.pair] === state.pair);
  calls.forEach((call, place) => {
    const error = asNumber(call[CALL.error]);
    if (typeof error !== "number") return;
    const power = error > 0 ? Math.min(HIGHEST, Math.max(LOWEST, Math.log10(error))) : LOWEST;
    const x = left + (width * (place + 0.5)) / calls.length, y = 6 + (height * (HIGHEST - power)) / (HIGHEST - LOWEST);
    pen.fillStyle = style.getPropertyValue(`--${call[CALL.outcome]}`);
    const size = call[CALL.cause] === "culprit" ? 6 : 3;
    pen.fillRect(x - size / 2, y - size / 2, size, size);
    plotted.push({ x, y, call });
  });
}

function nearest(event) {
  const box = byId("plot").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  let best = null, distance = 144;
  for (const point of plotted) {
    const away = (point.x - x) ** 2 + (point.y - y) ** 2;
    if (away < distance) [best, distance] = [point, away];
  }
  return best;
}

byId("plot").addEventListener("mousemove", (event) => {
  const point = nearest(event), tip = byId("tip");
  tip.hidden = !point;
  if (!point) return;
  tip.textContent = `${point.call[CALL.record]}: ${numberText(point.call[CALL.error])} ${point.call[CALL.cause]}`;
  const right = point.x > byId("plot").clientWidth / 2;
  tip.style.left = right ? "auto" : `${point.x + 8}px`;
  tip.style.right = right ? `${byId("plot").clientWidth - point.x + 8}px` : "auto";
  tip.style.top = `${Math.max(0, Math.min(point.y - 10, 120))}px`;
});
byId("plot").addEventListener("mouseleave", () => { byId("tip").hidden = true; });
byId("plot").addEventListener("click", (event) => { const point = nearest(event); if (point) goTo(point.call); });

function goTo(call) {
  byId("search").value = call[CALL.record];
  state.words = [call[CALL.record].toLowerCase()];
  state.pair = call[CALL.pair];
  byId("pair").value = String(call[CALL.pair]);
  chooseNode(null, byId("tree").firstElementChild);
  const worst = state.visible.reduce((a, b) => (a === undefined || SEVERITY[page.rows[b][ROW.outcome]] > SEVERITY[page.rows[a][ROW.outcome]] ? b : a), undefined);
  if (worst !== undefined) choose(worst);
}

/* The page. */

function modulePath(call) {
  // Module.block.fc.Linear.forward.0 is block/fc; what has no module is grouped by the type of its API.
  const name = call[CALL.module] || (/^(Module|Cell)\./.test(call[CALL.record]) ? call[CALL.record] : "");
  const parts = name.split(".");
  const end = parts.findIndex((part, place) => place > 1 && /^(forward|backward|parameters_grad)$/.test(part));
  if (!/^(Module|Cell)$/.test(parts[0]) || end < 0) return name ? name.replaceAll(".", "/") : `outside of modules/${call[CALL.record].split(".")[0]}`;
  return parts.slice(1, end - 1).join("/") || parts[1];
}

function start() {
  for (const call of page.calls) call.path = modulePath(call);
  document.title = byId("title").textContent = page.title;
  byId("about").textContent = page.about;
  page.calls.filter((call) => call[CALL.cause] === "culprit").slice(0, 3).forEach((call, place) => {
    const button = element("button", `${place ? "then" : "first culprit"}: ${call[CALL.record]}`, "fail");
    button.title = call[CALL.reason];
    button.addEventListener("click", () => lookAt(call));
    byId("culprits").append(button);
  });
  byId("pair").replaceChildren(...[["all", -1], ...page.pairs.map((name, place) => [name, place])].map(([name, value]) => {
    const option = element("option", name);
    option.value = String(value);
    return option;
  }));
  byId("pair").hidden = page.pairs.length < 2;
  byId("pair").addEventListener("change", (event) => { state.pair = Number(event.target.value); plot(); refresh(); });
  for (const outcome of OUTCOMES) {
    const count = page.rows.reduce((sum, row) => sum + (row[ROW.outcome] === outcome), 0);
    const button = element("button", `${outcome} ${count}`, outcome);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const on = !state.shown.delete(outcome);
      if (on) state.shown.add(outcome);
      button.setAttribute("aria-pressed", String(on));
      refresh();
    });
    byId("outcomes").append(button);
  }
  let waiting = 0;
  byId("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      state.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      refresh();
    }, 120);
  });
  byId("scroller").addEventListener("scroll", () => requestAnimationFrame(draw));
  window.addEventListener("resize", () => { plot(); draw(); });
  byId("views").hidden = !page.graphs.length;
  byId("show-table").addEventListener("click", () => showView("table"));
  byId("show-graph").addEventListener("click", () => showView("graph"));
  titles();
  tree();
  plot();
  refresh();
}

start();
