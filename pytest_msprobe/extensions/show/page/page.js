const STATISTICS = ["max", "min", "mean", "norm"];
const COUNTS = { zeros: "zero", nan: "NaN", inf: "inf", negative_inf: "-inf" };
const METRICS = {
  max_abs_err: "greatest absolute error", rel_err_max: "greatest relative error",
  max_ulp_error: "greatest error in units of the last place", euclidean: "Euclidean distance",
  scaled_error: "error as a fraction of the scale", cosine_sim: "cosine",
  rel_err_thousandth: "share with relative error below 0.001",
  nonfinite_mismatch: "elements that are NaN or inf on one side only",
};

function rowsTable(titles, rows) {
  const table = element("table");
  const add = (cells, tag) => {
    const row = table.appendChild(element("tr"));
    cells.forEach((cell) => row.appendChild(element(tag, cell, typeof cell === "number" ? "number" : "")));
  };
  if (titles) add(titles, "th");
  rows.forEach((row) => add(row, "td"));
  return table;
}

function bars(counts, label) {
  const most = Math.max(...counts, 1), width = 14, height = 70;
  const chart = svg("svg", { width: counts.length * width, height: height + 2, role: "img", "aria-label": label });
  counts.forEach((count, place) => {
    const tall = count ? Math.max(1, count / most * height) : 0;
    const bar = svg("rect", { x: place * width, y: height - tall, width: width - 2, height: tall, class: "bar" });
    bar.appendChild(svg("title", {}, String(count)));
    chart.appendChild(bar);
  });
  return chart;
}

function tensorView(tensor) {
  const view = element("div"), held = tensor.contents;
  view.appendChild(element("p", tensor.dtype ? `${tensor.dtype} [${tensor.shape.join(", ")}]` : tensor.text || "None"));
  if (tensor.problem) view.appendChild(element("p", tensor.problem, "fail"));
  const numbers = held ? STATISTICS.map((name) => held[name]) : tensor.recorded;
  if (numbers && numbers.some((number) => number !== null)) view.appendChild(rowsTable(STATISTICS, [numbers.map((number) => numberText(asNumber(number)))]));
  if (!held) return view;
  const counted = Object.entries(COUNTS).filter(([key]) => held[key]).map(([key, word]) => `${held[key]} ${word}`);
  if (counted.length) view.appendChild(element("p", `of its elements ${counted.join(", ")}`));
  if (held.first.length) view.appendChild(element("p", `first: ${held.first.join(" ")}`));
  if (held.histogram) {
    const { least, greatest, counts } = held.histogram;
    view.appendChild(bars(counts, "Histogram of the elements"));
    view.appendChild(element("p", `${numberText(least)} to ${numberText(greatest)}`, "legend"));
  }
  return view;
}

function levelColour(level) {
  const { ranks, limit, none, notFinite } = page.levels;
  if (level === none) return null;
  if (level === notFinite) return "#8250df";
  const rank = ranks.indexOf(level);
  if (rank === 0) return "#eef1f4";
  if (rank <= limit) return `hsl(130 35% ${92 - 30 * rank / limit}%)`;
  return `hsl(${Math.max(0, 45 - 3 * (rank - limit))} 90% ${Math.max(32, 60 - 1.5 * (rank - limit))}%)`;
}

function mapView(map) {
  const view = element("div"), size = 8, canvas = element("canvas", undefined, "map");
  canvas.width = map.lines[0].length * size;
  canvas.height = map.lines.length * size;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Error map: ${plural(map.wrong, "element")} beyond ${map.allowed}`);
  const pen = canvas.getContext("2d");
  map.lines.forEach((line, down) => [...line].forEach((level, across) => {
    const colour = levelColour(level);
    if (colour === null) return;
    pen.fillStyle = colour;
    pen.fillRect(across * size, down * size, size, size);
  }));
  view.appendChild(element("h3", "Error map"));
  view.appendChild(canvas);
  view.appendChild(element("p", `${map.rows} x ${map.columns}, a square is ${map.block[0]} x ${map.block[1]} elements; green is within the limit, yellow to red beyond it, violet NaN or inf`, "legend"));
  view.appendChild(element("p", `${plural(map.wrong, "element")} beyond ${map.allowed}`));
  view.appendChild(element("h3", `Errors in ${map.unit === "ULP" ? "units of the last place" : "units"}`));
  view.appendChild(bars(map.histogram, "Histogram of the errors"));
  view.appendChild(element("p", `up to ${page.levels.bins.join(", ")}, beyond, not finite`, "legend"));
  return view;
}

function listed(title, found) {
  const view = element("div");
  view.appendChild(element("h3", title));
  view.appendChild(rowsTable(["index", "first", "second", "error"],
    found.map((one) => [`[${one.index.join(", ")}]`, one.first, one.second, numberText(asNumber(one.error))])));
  return view;
}

function metricText(found, name) {
  const text = numberText(asNumber(found.metrics[name])), finite = found.finite_metrics;
  return finite && !Number.isFinite(asNumber(found.metrics[name])) ? `${text}; finite elements: ${numberText(asNumber(finite[name]))}` : text;
}

function differenceView(found) {
  const view = element("div");
  view.appendChild(element("p", `equal: ${found.equal} of ${plural(found.count, "element")}`));
  if (found.equal === found.count) return view;
  if (found.atol || found.rtol) view.appendChild(element("p", `beyond ${found.atol} + ${found.rtol} * |second|: ${plural(found.beyond, "element")}`));
  const metrics = Object.entries(METRICS).filter(([name]) => name in found.metrics);
  view.appendChild(rowsTable(null, metrics.map(([name, text]) => [text, metricText(found, name)])));
  const lists = view.appendChild(element("div", undefined, "sides"));
  if (found.first.length) lists.appendChild(listed("First differing elements", found.first));
  if (found.largest.length) lists.appendChild(listed("Largest differences", found.largest));
  if (found.map) lists.appendChild(mapView(found.map));
  return view;
}

function pairView(pair) {
  const view = element("section");
  view.id = pair.name;
  const head = view.appendChild(element("h2", pair.name || "the tensor"));
  head.appendChild(element("span", ` ${pair.outcome}`, pair.outcome));
  if (pair.reason) view.appendChild(element("p", pair.reason));
  if (pair.difference) view.appendChild(differenceView(pair.difference));
  const sides = view.appendChild(element("div", undefined, "sides"));
  for (const side of ["first", "second"]) {
    if (!pair[side]) continue;
    const own = sides.appendChild(element("div"));
    own.appendChild(element("h3", side));
    own.appendChild(tensorView(pair[side]));
  }
  return view;
}

/* Tensors in a line each, which leads to what is shown of it. */
function summary(tensors) {
  const list = element("ul", undefined, "summary");
  list.append(...tensors.map(({ name, outcome, reason }) => {
    const line = element("li"), link = element("a", name || "the tensor");
    link.href = `#${encodeURIComponent(name)}`;
    line.append(element("span", outcome ?? "", outcome), " ", link, reason ? `: ${reason}` : "");
    return line;
  }));
  return list;
}

function folded(title, tensors) {
  const box = element("details");
  box.append(element("summary", title), summary(tensors));
  return box;
}

showHeader(page.title, `${page.files.join(" against ")}${page.judged ? `, judged by ${page.judged}` : ""}`);
const FIRST = ["fail", "warn", "skip", "pass"];
const ranked = [...page.pairs.slice().sort((a, b) => FIRST.indexOf(a.outcome) - FIRST.indexOf(b.outcome)), ...page.tensors];
const isPassed = (one) => one.outcome === "pass", passed = ranked.filter(isPassed);
if (ranked.length > 1) byId("shown").append(summary(ranked.filter((one) => !isPassed(one))), ...(passed.length ? [folded(`${passed.length} pass`, passed)] : []));
byId("shown").append(...nextSteps({}, [["Show this again", page.command]]));
for (const pair of ranked.slice(0, page.pairs.length)) byId("shown").append(pairView(pair));
for (const tensor of page.tensors) {
  const view = element("section");
  view.id = tensor.name;
  view.append(element("h2", tensor.name || "the tensor"), tensorView(tensor));
  byId("shown").append(view);
}
onLink((fragment) => byId(fragment)?.scrollIntoView(), () => {});
