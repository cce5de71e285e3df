// A series of monitored training: [name, item, spread by run]; a spread: [least, median, greatest] or null.
const SERIES = { name: 0, item: 1, spreads: 2 };
const SPREAD = { least: 0, median: 1, greatest: 2 };
const PLOT = { left: 46, right: 214, top: 6, bottom: 84 };
// From this ratio on, what is all positive is on a logarithmic scale.
const WIDE = 20;

// Return what places a value between the bottom and the top of a plot.
function heightOf(spreads) {
  const values = spreads.flat(), least = Math.min(...values), greatest = Math.max(...values);
  const scale = least > 0 && greatest > WIDE * least ? Math.log : (value) => value;
  const range = scale(greatest) - scale(least);
  const at = (value) => PLOT.bottom - (PLOT.bottom - PLOT.top) * (range ? (scale(value) - scale(least)) / range : 0.5);
  return { at, ends: range ? [least, greatest] : [least] };
}

function axisText(value) {
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-2 || size >= 1e5) ? value.toExponential(1) : marginText(value);
}

function spreadText(spread) {
  return `${marginText(spread[SPREAD.median])}, from ${marginText(spread[SPREAD.least])} to ${marginText(spread[SPREAD.greatest])}`;
}

function plot(series) {
  const made = svg("svg", { viewBox: "0 0 220 100", role: "img", "aria-label": `Values of ${series[SERIES.name]} by run` });
  const points = series[SERIES.spreads].map((spread, place) => spread && { spread, place }).filter(Boolean);
  const { at, ends } = heightOf(points.map(({ spread }) => spread));
  const x = (place) => PLOT.left + ((PLOT.right - PLOT.left) * (place + 0.5)) / page.runs.length;
  for (const end of ends) {
    made.append(svg("line", { class: "grid", x1: PLOT.left, x2: PLOT.right, y1: at(end), y2: at(end) }));
    made.append(svg("text", { x: PLOT.left - 4, y: at(end) + 3, "text-anchor": "end" }, axisText(end)));
  }
  for (const { spread, place } of points)
    made.append(svg("line", { class: "spread", x1: x(place), x2: x(place), y1: at(spread[SPREAD.least]), y2: at(spread[SPREAD.greatest]) }));
  made.append(svg("polyline", { class: "curve", points: points.map(({ spread, place }) => `${x(place)},${at(spread[SPREAD.median])}`).join(" ") }));
  for (const { spread, place } of points) {
    const point = svg("circle", { cx: x(place), cy: at(spread[SPREAD.median]), r: 3 });
    point.append(svg("title", {}, `${page.runs[place][1]}: ${spreadText(spread)}`));
    made.append(point);
  }
  const every = Math.ceil(page.runs.length / 10);
  page.runs.forEach((_, place) => {
    if (place % every === 0) made.append(svg("text", { x: x(place), y: 97, "text-anchor": "middle" }, place + 1));
  });
  return made;
}

function figure(series) {
  const made = element("button"), caption = element("span", series[SERIES.name]);
  caption.title = series[SERIES.name];
  made.append(caption, plot(series));
  made.addEventListener("click", () => {
    const api = page.apis.find((one) => one[API.name] === series[SERIES.item]);
    open(api);
  });
  return made;
}

byId("series").hidden = !page.series.length;
byId("plots").replaceChildren(...page.series.map(figure));
