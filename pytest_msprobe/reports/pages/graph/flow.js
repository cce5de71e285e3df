/* The data flow of one run: the values that went from one call to another. */

const LIKENESS = ["", "through a view that was not recorded", "one of the gradients that add up to it"];
const UNCERTAIN = "or another call that made an equal value";

class DataFlow {
  /* The data of a page have five numbers for each value: from where, as what, to where, as what, how it is known. */
  constructor({ edges, places }) {
    this.values = [];
    for (let at = 0; at < edges.length; at += 5) {
      const [from, output, to, input, how] = edges.slice(at, at + 5);
      const known = [LIKENESS[how % 3], how > 2 ? UNCERTAIN : ""].filter(Boolean).join("; ");
      this.values.push({ from, output: places[output], to, input: places[input], known, isCertain: how < 3 });
    }
    this.into = Map.groupBy(this.values, ({ to }) => to);
    this.outOf = Map.groupBy(this.values, ({ from }) => from);
  }

  /* What the calls from first to last took from others and gave to them. */
  given(first, last) { return across(this.into, first, last, ["to", "input", "from", "output"]); }
  taken(first, last) { return across(this.outOf, first, last, ["from", "output", "to", "input"]); }

  /* The edges between what is drawn, which `owners` has for each call; several between the same two are one. */
  between(owners) {
    const seen = new Map();
    for (const value of this.values) {
      const from = owners[value.from], to = owners[value.to], key = `${from} ${to}`;
      if (from === to || !from || !to) continue;
      if (!seen.has(key)) seen.set(key, { from, to, count: 0, isCertain: false });
      seen.get(key).count++;
      seen.get(key).isCertain ||= value.isCertain;
    }
    return [...seen.values()];
  }
}

/* Each value once: the call here and the one at the other end, both places, and how it is known. */
function across(values, first, last, [node, place, other, otherPlace]) {
  const found = [];
  for (let here = first; here <= last; here++) found.push(...(values.get(here) ?? []));
  return found.filter((value) => value[other] < first || value[other] > last)
    .map((one) => ({ ...one, node: one[node], place: one[place], other: one[other], otherPlace: one[otherPlace] }));
}
