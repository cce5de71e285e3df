// A series of monitored training: [name, item, spread by run]; a spread: [least, median, greatest] or null.
// From this ratio on, what is all positive is on a logarithmic scale.
const WIDE = 20;
const drawn = [];

/* The median of each run as a line, in a band from the least to the greatest value. */
function spreadPlot(spreads) {
  const box = element("span", [], "spread"), sides = [0, 1, 2].map((side) => spreads.map((spread) => spread?.[side] ?? null));
  const values = spreads.flatMap((spread) => spread ?? []), least = Math.min(...values), greatest = Math.max(...values);
  const runs = { grid: { show: false }, incrs: WHOLE_STEPS, space: 20, values: (_, places) => places.map((place) => place + 1) };
  const splits = () => [...new Set([least, greatest])], texts = (_, numbers) => numbers.map((one) => rounded(one, 3));
  const band = `${themeColour("skip")}55`, line = themeColour("fore");
  const side = { stroke: band, points: { show: true, size: 3, stroke: band } };
  drawn.push(new uPlot({
    width: 204, height: 110, legend: { show: false }, cursor: { show: false }, padding: [8, 6, 0, 0],
    scales: {
      x: { time: false, range: [-0.5, spreads.length - 0.5] },
      y: { distr: least > 0 && greatest > WIDE * least ? 3 : 1, range: least < greatest ? [least, greatest] : undefined },
    },
    axes: [plotAxis(null, 20, runs), plotAxis(null, 48, { splits, values: texts, filter: (_, all) => all })],
    series: [{}, side, { stroke: line, spanGaps: true, points: { show: true, size: 5, fill: line } }, side],
    bands: [{ series: [3, 1], fill: band }],
  }, [spreads.map((_, place) => place), ...sides], box));
  return box;
}

function seriesButton([name, item, spreads]) {
  const texts = spreads.flatMap((spread, place) => {
    const [least, median, greatest] = (spread ?? []).map((number) => rounded(number, 3));
    return spread ? [`${page.runs[place][1]}: ${median}, from ${least} to ${greatest}`] : [];
  });
  const open = () => table.goTo(page.apis.find((one) => one[API.name] === item));
  return filled(button([element("bdi", name, "name"), spreadPlot(spreads)], open), [], { title: [name, ...texts].join("\n") });
}

function drawSeries() {
  drawn.splice(0).forEach((one) => one.destroy());
  byId("plots").replaceChildren(...page.series.map(seriesButton));
}

byId("series").hidden = !page.series.length;
window.addEventListener("themechange", drawSeries);
drawSeries();
