/* Small curves next to each other: other statistics and other ranks of a tensor. */

const MARGIN = { left: 60, right: 6, top: 6, bottom: 4 }, SMALL = { width: 200, height: 74 };

function smallChart(lines, label, range) {
  const { width, height } = SMALL, inner = width - MARGIN.left - MARGIN.right, bottom = height - MARGIN.bottom;
  const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, preserveAspectRatio: "none" });
  const points = lines.map((line) => [...pointsOf(line)]), scale = scaleOf(points.flat(), range);
  const x = (at) => MARGIN.left + (inner * (at - state.from)) / (state.to - state.from);
  const y = (value) => bottom - (bottom - MARGIN.top) * scale.at(Math.max(value, scale.low));
  for (const value of scale.ends) {
    made.append(svg("line", { class: "rule", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
    made.append(svg("text", { x: MARGIN.left - 4, y: Math.max(9, y(value) + 3), "text-anchor": "end" }, shortText(+value.toPrecision(3))));
  }
  lines.forEach((line, place) => made.append(...paths(line, points[place], x, y)));
  return made;
}

function paths(line, points, x, y) {
  const parts = [], marks = [];
  let run = [];
  const end = () => {
    if (run.length) parts.push(line.steps ? stroke(run) : band(run));
    run = [];
  };
  for (const [at, low, high] of points) {
    if (Number.isFinite(low) && Number.isFinite(high)) {
      run.push([x(at), y(low), y(high)]);
      continue;
    }
    end();
    marks.push(svg("text", { class: "not-finite", x: x(at), y: MARGIN.top + 9 }, "×"));
  }
  end();
  return [svg("path", { class: `${line.className}${line.steps ? " exact" : ""}`, d: parts.join("") }), ...marks];
}

function stroke(run) {
  const place = ([at, low]) => `${at.toFixed(1)},${low.toFixed(1)}`;
  return `M${place(run[0])}L${(run.length > 1 ? run : [run[0], [run[0][0] + 1, run[0][1]]]).map(place).join(" ")}`;
}

function band(run) {
  const points = run.length > 1 ? run : [run[0], [run[0][0] + 1, run[0][1], run[0][2]]];
  const upper = points.map(([at, , high]) => `${at.toFixed(1)},${high.toFixed(1)}`), lower = points.map(([at, low]) => `${at.toFixed(1)},${low.toFixed(1)}`).reverse();
  return `M${upper.join("L")}L${lower.join("L")}Z`;
}

function listOf(findings) {
  const list = element("ul");
  list.append(...findings.slice(0, 5).map((one) => element("li", one[FINDING.message], one[FINDING.outcome])));
  if (findings.length > 5) list.append(element("li", `and ${findings.length - 5} more`, "soft"));
  return list;
}

function multiples(title, all, name, choose, range = null) {
  if (!all.length) return;
  const grid = element("div", undefined, "grid");
  for (const series of all) {
    const figure = element("button", undefined, "figure");
    figure.append(element("span", name(series), "caption"), smallChart(linesOf(series), name(series), range));
    figure.classList.toggle("chosen", series === state.rows[state.cursor.row]);
    figure.addEventListener("click", () => choose(series));
    grid.append(figure);
  }
  byId("details").append(element("h3", title), grid);
}

// Small multiples are read side by side: they share their scale.
function commonRange(all) {
  let low = Infinity, high = -Infinity;
  for (const series of all) {
    for (const line of linesOf(series)) {
      for (const [, least, most] of pointsOf(line)) {
        if (Number.isFinite(least)) low = Math.min(low, least);
        if (Number.isFinite(most)) high = Math.max(high, most);
      }
    }
  }
  return low < high ? [low, high] : null;
}

