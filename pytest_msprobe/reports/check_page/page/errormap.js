/* Where in a tensor the error sits, and how large it is. */

function levelColour(level) {
  if (level === page.levels.notFinite) return "#a21caf";
  const rank = page.levels.finite.indexOf(level), limit = page.levels.limit;
  if (rank <= 0) return rank < 0 ? "transparent" : "rgba(128,128,128,.12)";
  if (rank <= limit) return `hsl(205 60% 50% / ${(0.15 + (0.55 * rank) / limit).toFixed(3)})`;
  const over = Math.min(1, (rank - limit - 1) / 28);
  return `hsl(${(38 - 38 * over).toFixed(0)} 95% ${(52 - 22 * over).toFixed(0)}%)`;
}

function levelText(level) {
  if (level === page.levels.notFinite) return "NaN or inf where golden has another value, or the other way round";
  const rank = page.levels.finite.indexOf(level), limit = page.levels.limit;
  if (rank < 0) return "no element";
  if (rank === 0) return "no error";
  return rank <= limit ? `up to ${marginText(10 ** ((rank - limit) / 4))} of the limit` : `${marginText(10 ** ((rank - limit - 1) / 4))} to ${marginText(10 ** ((rank - limit) / 4))} times the limit`;
}

function errorMap(map) {
  const box = element("div", undefined, "map"), canvas = element("canvas"), caption = element("div", mapSentence(map), "caption");
  const lines = map.lines, across = lines[0].length;
  const wide = Math.max(3, Math.min(24, Math.floor(400 / across))), high = Math.max(3, Math.min(24, Math.floor(320 / lines.length)));
  canvas.width = across * wide;
  canvas.height = lines.length * high;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", mapSentence(map));
  const pen = canvas.getContext("2d");
  lines.forEach((line, y) => [...line].forEach((level, x) => {
    pen.fillStyle = levelColour(level);
    pen.fillRect(x * wide, y * high, wide, high);
  }));
  canvas.addEventListener("mousemove", (event) => {
    const place = canvas.getBoundingClientRect();
    const x = Math.min(across - 1, Math.floor(((event.clientX - place.left) / place.width) * across)), y = Math.min(lines.length - 1, Math.floor(((event.clientY - place.top) / place.height) * lines.length));
    if (x < 0 || y < 0) return;
    caption.textContent = `${spanText("row", y, map.block[0], map.rows)}, ${spanText("column", x, map.block[1], map.columns)}: ${levelText(lines[y][x])}`;
  });
  canvas.addEventListener("mouseleave", () => { caption.textContent = mapSentence(map); });
  const [rows, columns] = axes(map);
  box.append(element("span", rows, "rows soft"), canvas, element("span", columns, "columns soft"), caption);
  return box;
}

function spanText(what, place, size, total) {
  const first = place * size, last = Math.min(total, first + size) - 1;
  return first === last ? `${what} ${first}` : `${what}s ${first} to ${last}`;
}

function axes(map) {
  if (map.split === null) return [`${map.rows} lines`, `lines of ${map.columns} elements, one after the other`];
  const dims = (from, to) => (to - from === 1 ? `dimension ${from}` : `dimensions ${from} to ${to - 1}`);
  return [
    map.split ? `${map.rows} rows: ${dims(0, map.split)}` : "1 row",
    map.split < map.shape.length ? `${map.columns} columns: ${dims(map.split, map.shape.length)}` : "1 column",
  ];
}

function mapSentence(map) {
  const place = map.place ? `, ${map.wrong === 1 ? "at" : "all in"} ${map.place}` : "";
  return `${map.wrong} element${map.wrong === 1 ? "" : "s"} of ${map.shape.reduce((a, b) => a * b, 1)} beyond ${map.allowed}${place}`;
}

function mapLegend() {
  const box = element("div", undefined, "levels soft"), levels = page.levels, at = (steps) => levels.finite[levels.limit + steps];
  for (const [level, text] of [[levels.finite[0], "no error"], [at(-8), "1 % of the limit"], [at(0), "at the limit"], [at(1), "above"], [at(8), "100 times"], [at(24), "a million times"], [levels.notFinite, "NaN or inf"]]) {
    const sample = element("i"), item = element("span");
    sample.style.background = levelColour(level);
    item.append(sample, text);
    box.append(item);
  }
  return box;
}

/* Elements by their error in units of the last place, of the target and of the baseline. */
function errorHistogram(map) {
  const names = [...page.bins.map((end) => (end >= 2 ** 14 ? `2^${Math.log2(end)}` : String(end))), "more", "NaN/inf"];
  const both = map.baseline_histogram.length > 0, wide = 36, top = Math.log10(1 + Math.max(...map.histogram, ...map.baseline_histogram));
  const chart = svg("svg", { viewBox: `0 0 ${names.length * wide} 118`, class: "histogram", role: "img", "aria-label": `Elements by error in ${map.unit}` });
  const bar = (count, x, width, kind, name) => {
    const height = top ? (80 * Math.log10(1 + count)) / top : 0, made = svg("rect", { x, y: 98 - height, width, height, class: kind });
    made.append(svg("title", {}, `${kind}, ${Number(name) > 0 || name.startsWith("2^") ? "up to " : ""}${name} ${map.unit}: ${count} elements`));
    chart.append(made);
    if (count && kind === "target") chart.append(svg("text", { x: x + width / 2, y: 95 - height }, shortCount(count)));
  };
  names.forEach((name, place) => {
    bar(map.histogram[place], place * wide + 3, both ? 15 : 30, "target", name);
    if (both) bar(map.baseline_histogram[place], place * wide + 18, 15, "baseline", name);
    chart.append(svg("text", { x: place * wide + wide / 2, y: 111 }, name));
  });
  return chart;
}

function shortCount(count) {
  return count < 1e4 ? String(count) : count < 1e7 ? `${Math.round(count / 1e3)}k` : `${Math.round(count / 1e6)}M`;
}
