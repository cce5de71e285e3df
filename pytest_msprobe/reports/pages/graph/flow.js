/* The data flow of one run: five numbers for each value that went from one call to another. */

const LIKENESS = ["", "through a view that was not recorded", "one of the gradients that add up to it"];
const UNCERTAIN = "or another call that made an equal value";

class DataFlow {
  constructor(run) {
    this.edges = run.edges;
    this.places = run.places;
    this.into = new Map();
    this.outOf = new Map();
    for (let at = 0; at < this.edges.length; at += 5) {
      DataFlow.#add(this.outOf, this.edges[at], at);
      DataFlow.#add(this.into, this.edges[at + 2], at);
    }
  }

  static #add(lists, key, value) {
    const list = lists.get(key);
    if (list) list.push(value);
    else lists.set(key, [value]);
  }

  /* What the calls from first to last took from others and gave to them. */
  given(first, last = first) { return this.#across(this.into, first, last, 2, 0); }
  taken(first, last = first) { return this.#across(this.outOf, first, last, 0, 2); }

  /* Each value once: the call here and the one at the other end, both places, and how it is known. */
  #across(lists, first, last, here, there) {
    const found = [];
    for (let node = first; node <= last; node++) {
      for (const at of lists.get(node) ?? []) {
        const other = this.edges[at + there], how = this.edges[at + 4];
        if (other >= first && other <= last) continue;
        const known = [LIKENESS[how % 3], how > 2 ? UNCERTAIN : ""].filter(Boolean).join("; ");
        found.push({ node, other, place: this.places[this.edges[at + here + 1]], otherPlace: this.places[this.edges[at + there + 1]], known });
      }
    }
    return found;
  }

  /* Edges between rows: several between two blocks are one. */
  lift(tree) {
    const rows = tree.rows.length;
    this.byRow = new Map();
    const seen = new Map();
    for (let at = 0; at < this.edges.length; at += 5) {
      const from = tree.rowOf[this.edges[at]], to = tree.rowOf[this.edges[at + 2]];
      if (from === to) continue;
      const key = from * rows + to, isCertain = this.edges[at + 4] < 3;
      const known = seen.get(key);
      if (known) {
        known.isCertain ||= isCertain;
        continue;
      }
      const edge = { from, to, isCertain };
      seen.set(key, edge);
      DataFlow.#add(this.byRow, from, edge);
      DataFlow.#add(this.byRow, to, edge);
    }
  }

  between(first, last) {
    const found = new Set();
    for (let row = first; row < last; row++) for (const edge of this.byRow.get(row) ?? []) found.add(edge);
    return found;
  }
}
