// A call: [what is wrong with it, its values, its call stack]; a value: [place, what it is, max, min, mean, norm]
const CALL = { failure: 0, values: 1, stack: 2 };
const VALUE = { place: 0, what: 1, numbers: 2 };

function callOf(place, side, node) {
  return page.calls[page.graphs[place][side].calls[node]];
}

function describe(place, side, node) {
  const call = callOf(place, side, node);
  if (!call) return {};
  const facts = call[CALL.values].map((value) => {
    return [value[VALUE.place], [value[VALUE.what], ...statistics(value.slice(VALUE.numbers))].join(", ")];
  });
  const commands = nextSteps({ dump: page.dumps[place], record: page.graphs[place][side].names[node] });
  return { failure: call[CALL.failure], facts, stack: call[CALL.stack], commands };
}

function statistics(numbers) {
  const known = ["max", "min", "mean", "norm"].map((name, at) => [name, numbers[at] ?? null]);
  return known.flatMap(([name, number]) => (number === null ? [] : [`${name} ${numberText(number)}`]));
}

function brief(place, side, node) {
  const values = callOf(place, side, node)?.[CALL.values] ?? [];
  return values.find((value) => value[VALUE.place].startsWith("output"))?.[VALUE.what] ?? "";
}

showHeader(page.title, page.about);
const view = new GraphView(byId("graph"), page.graphs, { describe, brief, isLinked: true });
onLink((fragment) => view.follow(fragment), () => {});
view.host.went = () => setFragment(view.fragment());
view.outline.box.focus({ preventScroll: true });
