// A series of monitored training: [name, item, spread by run]; a spread: [least, median, greatest] or null.
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

function spreadPlot(name, spreads) {
  const given = spreads.flatMap((spread, place) => (spread ? [{ spread, place }] : []));
  const every = Math.ceil(spreads.length / 10);
  const { at, ends } = heightOf(given.map(({ spread }) => spread));
  const x = (place) => PLOT.left + ((PLOT.right - PLOT.left) * (place + 0.5)) / spreads.length;
  const across = { x1: PLOT.left, x2: PLOT.right }, aside = { x: PLOT.left - 4, "text-anchor": "end" };
  const points = given.map(({ place, spread: [least, median, greatest] }) => ({
    cx: x(place), cy: at(median), from: at(least), to: at(greatest),
    text: `${page.runs[place][1]}: ${marginText(median)}, from ${marginText(least)} to ${marginText(greatest)}`,
  }));
  const numbers = spreads.map((_, place) => place).filter((place) => place % every === 0);
  return svg("svg", { viewBox: "0 0 220 100", role: "img", "aria-label": `Values of ${name} by run` }, [
    ...ends.flatMap((end) => [
      svg("line", { class: "grid", ...across, y1: at(end), y2: at(end) }),
      svg("text", { ...aside, y: at(end) + 3 }, axisText(end)),
    ]),
    ...points.map(({ cx, from, to }) => svg("line", { class: "spread", x1: cx, x2: cx, y1: from, y2: to })),
    svg("polyline", { class: "curve", points: points.map(({ cx, cy }) => `${cx},${cy}`).join(" ") }),
    ...points.map(({ cx, cy, text }) => svg("circle", { cx, cy, r: 3 }, svg("title", {}, text))),
    ...numbers.map((place) => svg("text", { x: x(place), y: 97, "text-anchor": "middle" }, place + 1)),
  ]);
}

byId("series").hidden = !page.series.length;
byId("plots").append(...page.series.map(([name, item, spreads]) => button(
  [element("span", name, "", { title: name }), spreadPlot(name, spreads)],
  () => table.goTo(page.apis.find((one) => one[API.name] === item)),
)));
