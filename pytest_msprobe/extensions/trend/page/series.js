// A series of monitored training: [name, item, spread by run]; a spread: [least, median, greatest] or null.
// From this ratio on, what is all positive is on a logarithmic scale.
const WIDE = 20;
const drawn = [];

/* The median of each run as a line, in a band from the least to the greatest value. */
function spreadPlot(spreads) {
  const box = element("span", [], "spread"), of = (side) => spreads.map((spread) => spread?.[side] ?? null);
  const values = spreads.flatMap((spread) => spread ?? []), ends = [Math.min(...values), Math.max(...values)];
  const isWide = ends[0] > 0 && ends[1] > WIDE * ends[0], range = ends[0] < ends[1] ? ends : undefined;
  const band = `${themeColour("skip")}55`, line = themeColour("fore");
  const textOf = (text) => (_, all) => all.map(text);
  const side = { stroke: band, points: { show: true, size: 3, stroke: band } };
  drawn.push(new uPlot({
    width: 204, height: 110, legend: { show: false }, cursor: { show: false }, padding: [8, 6, 0, 0],
    scales: { x: { time: false, range: [-0.5, spreads.length - 0.5] }, y: { distr: isWide ? 3 : 1, range } },
    axes: [
      plotAxis(null, 20, { grid: { show: false }, incrs: WHOLE_STEPS, space: 20, values: textOf((run) => run + 1) }),
      plotAxis(null, 48, { splits: () => ends, filter: (_, all) => all, values: textOf((end) => rounded(end, 3)) }),
    ],
    series: [{}, side, { stroke: line, spanGaps: true, points: { show: true, size: 5, fill: line } }, side],
    bands: [{ series: [3, 1], fill: band }],
  }, [[...spreads.keys()], of(0), of(1), of(2)], box));
  return box;
}

function seriesButton([name, item, spreads]) {
  const texts = spreads.flatMap((spread, place) => {
    const [least, median, greatest] = (spread ?? []).map((number) => rounded(number, 3));
    return spread ? [`${page.runs[place][1]}: ${median}, from ${least} to ${greatest}`] : [];
  });
  const open = () => table.goTo(page.apis.find((one) => one[API.name] === item));
  const made = button([element("bdi", name, "name"), spreadPlot(spreads)], open);
  return filled(made, [], { title: [name, ...texts].join("\n") });
}

function drawSeries() {
  drawn.splice(0).forEach((one) => one.destroy());
  byId("plots").replaceChildren(...page.series.map(seriesButton));
}

byId("series").hidden = !page.series.length;
window.addEventListener("themechange", drawSeries);
drawSeries();
