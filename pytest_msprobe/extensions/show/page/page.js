const STATISTICS = ["max", "min", "mean", "norm"];
const COUNTS = { zeros: "zero", nan: "NaN", inf: "inf", negative_inf: "-inf" };
const shownNumber = (value) => numberText(asNumber(value));

/* Texts as paragraphs, without those that are empty. */
const paragraphs = (texts, look) => texts.filter(Boolean).map((text) => element("p", text, look));

const statisticsOf = ({ contents, recorded }) => (contents ? STATISTICS.map((name) => contents[name]) : recorded);

function tensorView({ dtype, shape, text, problem, recorded, contents: held }) {
  const numbers = statisticsOf({ contents: held, recorded });
  const hasNumbers = numbers?.some((number) => number !== null);
  return [
    ...paragraphs([dtype ? `${dtype} [${shape.join(", ")}]` : text || "None"]), ...paragraphs([problem], "fail"),
    ...(hasNumbers ? [plainTable(STATISTICS, [numbers.map(shownNumber)])] : []), ...(held ? elementsOf(held) : []),
  ];
}

function elementsOf({ first, histogram, ...held }) {
  const counted = Object.entries(COUNTS).filter(([key]) => held[key]).map(([key, word]) => `${held[key]} ${word}`);
  const label = "Histogram of the elements", scale = (count) => count, titleOf = (_, count) => String(count);
  return [
    ...paragraphs([counted.length && `of its elements ${counted.join(", ")}`]),
    ...paragraphs([first.length && `first: ${first.join(" ")}`]),
    ...(histogram ? [
      barChart(histogram.counts.map(() => ""), [["target", histogram.counts]], { label, titleOf, scale }),
      element("p", `${numberText(histogram.least)} to ${numberText(histogram.greatest)}`, "soft"),
    ] : []),
  ];
}

function mapView(map) {
  const unit = map.unit === "ULP" ? "units of the last place" : "units";
  return [element("h3", "Error map"), ...errorMap(map), element("h3", `Errors in ${unit}`), errorHistogram(map)];
}

function listed(title, found) {
  const lines = found.map((one) => [`[${one.index.join(", ")}]`, one.first, one.second, shownNumber(one.error)]);
  const table = plainTable(["index", "first", "second", "error"], lines);
  return found.length ? [element("div", [element("h3", title), table])] : [];
}

function metricText({ metrics, finite_metrics: finite }, name) {
  const isInfinite = finite && !Number.isFinite(asNumber(metrics[name]));
  return `${shownNumber(metrics[name])}${isInfinite ? `; finite elements: ${shownNumber(finite[name])}` : ""}`;
}

function differenceView(found) {
  const equal = element("p", `equal: ${found.equal} of ${plural(found.count, "element")}`);
  if (found.equal === found.count) return [equal];
  const allowed = `${found.atol} + ${found.rtol} * |second|`;
  const metrics = Object.entries(page.metrics).filter(([name]) => name in found.metrics);
  return [
    equal, ...paragraphs([(found.atol || found.rtol) && `beyond ${allowed}: ${plural(found.beyond, "element")}`]),
    plainTable([], metrics.map(([name, text]) => [text, metricText(found, name)])),
    element("div", [
      ...listed("First differing elements", found.first), ...listed("Largest differences", found.largest),
      ...(found.map ? [element("div", mapView(found.map))] : []),
    ], "sides"),
  ];
}

function sheetOf(one) {
  const sides = ["first", "second"].filter((side) => one[side]);
  return [
    ...nextSteps({}, [["Show this again", page.command]]), ...(isPaired ? [table.sheets.facts(one)] : tensorView(one)),
    ...(one.difference ? differenceView(one.difference) : []),
    element("div", sides.map((side) => element("div", [element("h3", side), ...tensorView(one[side])])), "sides"),
  ];
}

const isPaired = page.pairs.length > 0;
const outcomeOf = ({ outcome = "" }) => outcome, gravity = ({ outcome }) => gravityOf(outcome);
const rows = isPaired ? page.pairs.toSorted((a, b) => gravity(b) - gravity(a)) : page.tensors;
const table = makeRecords(rows, [
  ...(isPaired ? [{ title: "Result", of: outcomeOf, by: gravity, look: outcomeOf }] : []),
  { title: "Name", name: true, of: ({ name }) => name },
  ...(isPaired ? [{ title: "Why", grow: true, of: ({ reason }) => reason }] : [
    { title: "Dtype", of: ({ dtype }) => dtype }, { title: "Shape", grow: true, of: ({ shape }) => shape.join(", ") },
    ...STATISTICS.map((title, at) => ({ title, number: true, of: (one) => asNumber(statisticsOf(one)?.[at]) })),
  ]),
], {
  label: "Tensors", noun: ["tensor"], outcomes: ["fail", "warn", "pass", "skip", ""], outcomeOf,
  nameOf: ({ name }) => name || "the tensor", sheetOf,
});
showHeader(page.title, `${page.files.join(" against ")}${page.judged ? `, judged by ${page.judged}` : ""}`);
byId("table-box").hidden = rows.length === 1;
byId("outcomes").hidden = !isPaired;
table.refresh();
table.followLinks(table.sheets.find, () => table.goTo(rows[0]));
