const STATISTICS = ["max", "min", "mean", "norm"];
const COUNTS = { zeros: "zero", nan: "NaN", inf: "inf", negative_inf: "-inf" };
const METRICS = {
  max_abs_err: "greatest absolute error", rel_err_max: "greatest relative error",
  max_ulp_error: "greatest error in units of the last place", euclidean: "Euclidean distance",
  scaled_error: "error as a fraction of the scale", cosine_sim: "cosine",
  rel_err_thousandth: "share with relative error below 0.001",
  nonfinite_mismatch: "elements that are NaN or inf on one side only",
};
const shownNumber = (value) => numberText(asNumber(value));

/* Texts as paragraphs, without those that are empty. */
function paragraphs(texts, look) {
  return texts.filter(Boolean).map((text) => element("p", text, look));
}

function tensorView({ dtype, shape, text, problem, recorded, contents: held }) {
  const numbers = held ? STATISTICS.map((name) => held[name]) : recorded;
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
  return [
    element("h3", "Error map"), ...errorMap(map), element("h3", `Errors in ${unit}`), errorHistogram(map),
  ];
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
  const metrics = Object.entries(METRICS).filter(([name]) => name in found.metrics);
  return [
    equal, ...paragraphs([(found.atol || found.rtol) && `beyond ${allowed}: ${plural(found.beyond, "element")}`]),
    plainTable([], metrics.map(([name, text]) => [text, metricText(found, name)])),
    element("div", [
      ...listed("First differing elements", found.first), ...listed("Largest differences", found.largest),
      ...(found.map ? [element("div", mapView(found.map))] : []),
    ], "sides"),
  ];
}

function pairView(pair) {
  const sides = ["first", "second"].filter((side) => pair[side]);
  return element("section", [
    element("h2", [pair.name || "the tensor", element("span", ` ${pair.outcome}`, pair.outcome)]),
    ...paragraphs([pair.reason]), ...(pair.difference ? differenceView(pair.difference) : []),
    element("div", sides.map((side) => element("div", [element("h3", side), ...tensorView(pair[side])])), "sides"),
  ], "", { id: pair.name });
}

/* Tensors in a line each, which leads to what is shown of it. */
function summary(tensors) {
  return listOf(tensors.map(({ name, outcome, reason }) => {
    const link = element("a", name || "the tensor", "", { href: `#${encodeURIComponent(name)}` });
    return [element("span", outcome ?? "", outcome), " ", link, reason ? `: ${reason}` : ""];
  }), "summary");
}

showHeader(page.title, `${page.files.join(" against ")}${page.judged ? `, judged by ${page.judged}` : ""}`);
const FIRST = ["fail", "warn", "skip", "pass"];
const pairs = page.pairs.toSorted((a, b) => FIRST.indexOf(a.outcome) - FIRST.indexOf(b.outcome));
const passed = pairs.filter(({ outcome }) => outcome === "pass");
const others = [...pairs, ...page.tensors].filter((one) => !passed.includes(one));
byId("shown").append(
  ...(others.length + passed.length > 1 ? [summary(others)] : []),
  ...(others.length + passed.length > 1 && passed.length
    ? [element("details", [element("summary", `${passed.length} pass`), summary(passed)])] : []),
  ...nextSteps({}, [["Show this again", page.command]]), ...pairs.map(pairView),
  ...page.tensors.map((tensor) => {
    const parts = [element("h2", tensor.name || "the tensor"), ...tensorView(tensor)];
    return element("section", parts, "", { id: tensor.name });
  }),
);
onLink((fragment) => byId(fragment)?.scrollIntoView(), () => {});
