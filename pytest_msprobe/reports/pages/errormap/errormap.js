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
  const share = (steps) => String(+(10 ** ((rank - limit - steps) / 4)).toPrecision(4));
  if (rank < 1) return rank < 0 ? "no element" : "no error";
  return rank <= limit ? `up to ${share(0)} of the limit` : `${share(1)} to ${share(0)} times the limit`;
}

/* The map with its legend; the caption says what is under the pointer. */
function errorMap(map) {
  const { lines } = map, across = lines[0].length, sentence = mapSentence(map);
  const caption = element("div", sentence, "caption");
  const [wide, high] = [400 / across, 320 / lines.length].map((size) => Math.max(3, Math.min(24, Math.floor(size))));
  const size = { width: across * wide, height: lines.length * high };
  const canvas = element("canvas", [], "", { ...size, role: "img", "aria-label": sentence });
  const pen = canvas.getContext("2d");
  lines.forEach((line, y) => [...line].forEach((level, x) => {
    pen.fillStyle = levelColour(level);
    pen.fillRect(x * wide, y * high, wide, high);
  }));
  canvas.addEventListener("mousemove", ({ offsetX, offsetY }) => {
    const x = Math.floor((across * offsetX) / canvas.clientWidth);
    const y = Math.floor((lines.length * offsetY) / canvas.clientHeight);
    if (!lines[y]?.[x]) return;
    const row = spanText("row", y, map.block[0], map.rows), column = spanText("column", x, map.block[1], map.columns);
    caption.textContent = `${row}, ${column}: ${levelText(lines[y][x])}`;
  });
  canvas.addEventListener("mouseleave", () => { caption.textContent = sentence; });
  const [rows, columns] = axes(map);
  const parts = [element("span", rows, "rows soft"), canvas, element("span", columns, "columns soft"), caption];
  return [element("div", parts, "map"), mapLegend()];
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
  return `${plural(map.wrong, "element")} of ${grouped(map.shape.reduce((a, b) => a * b, 1))} beyond ${map.allowed}${place}`;
}

function mapLegend() {
  const { finite, limit, notFinite } = page.levels, at = (steps) => finite[limit + steps];
  const entries = [
    [finite[0], "no error"], [at(-8), "1 % of the limit"], [at(0), "at the limit"], [at(1), "above"],
    [at(8), "100 times"], [at(24), "a million times"], [notFinite, "NaN or inf"],
  ];
  const sample = (level) => element("i", [], "", { style: `background: ${levelColour(level)}` });
  return element("div", entries.map(([level, text]) => element("span", [sample(level), text])), "levels soft");
}

/* Elements by their error in units of the last place, of the target and of the baseline. */
function errorHistogram({ unit, histogram, baseline_histogram: baseline }) {
  const ends = page.bins.map((end) => (end >= 2 ** 14 ? `2^${Math.log2(end)}` : String(end)));
  const series = [["target", histogram], ...(baseline.length ? [["baseline", baseline]] : [])];
  return barChart([...ends, "more", "NaN/inf"], series, {
    label: `Elements by error in ${unit}`,
    titleOf: (name, count, look) => {
      return `${look}, ${/^(2\^|[1-9])/.test(name) ? "up to " : ""}${name} ${unit}: ${count} elements`;
    },
  });
}
