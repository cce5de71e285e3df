/* Counts as bars: `series` are looks with a count for each name, next to each other; `titleOf` says what a bar is. */
function barChart(names, series, { label, titleOf, scale = (count) => Math.log10(1 + count) }) {
  const room = 36, width = 30 / series.length, most = scale(Math.max(...series.flatMap(([, counts]) => counts)));
  const bars = series.flatMap(([look, counts], at) => counts.flatMap((count, place) => {
    const height = most ? (80 * scale(count)) / most : 0, x = place * room + 3 + at * width, y = 98 - height;
    const bar = svg("rect", { x, y, width, height, class: look }, svg("title", {}, titleOf(names[place], count, look)));
    const isNamed = count && !at && names[place] !== "";
    return isNamed ? [bar, svg("text", { x: x + width / 2, y: y - 3 }, shortCount(count))] : [bar];
  }));
  const words = names.map((name, place) => svg("text", { x: (place + 0.5) * room, y: 111 }, name));
  const facts = { viewBox: `0 0 ${names.length * room} 118`, class: "histogram", role: "img", "aria-label": label };
  return svg("svg", facts, [...bars, ...words]);
}

const shortCount = (count) => count.toLocaleString("en", { notation: "compact", maximumFractionDigits: 0 });
