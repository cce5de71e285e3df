/* The bar above a graph: which run, the search, how much is wrong, what the keys and lines are. */

const GRAPH_KEYS = [
  ["↑ ↓", "the block above, below"], ["→ ←", "open and enter, close and leave"], ["Home End", "first, last"],
  ["Enter", "open or close"], ["n p", "next, previous failure"], ["c", "first culprit"],
  ["i o", "to where its input comes from, where its output goes"], ["g", "to the golden run and back"],
  ["b", "to its backward call and back"], ["r", "to the partner on another rank"],
  ["t", "its numbers and failure text"], ["x", "to the boxes and back"], ["+ - 0", "zoom the boxes, see all of them"],
  ["Esc", "in the boxes: out to the module"], ["/", "search; Enter goes to the next, ⇧Enter to the one before"],
];
const GRAPH_LINES = [
  ["given", "what the chosen call was given"], ["taken", "what it returned"], ["wrong", "what a wrong call returned"],
  ["warned", "what one with a warning returned"],
  ["plain uncertain", "another call made equal values: the nearest is shown"],
];

class GraphBar {
  constructor(view) {
    Object.assign(this, { view, hits: [], sides: {}, found: element("span", [], "", { role: "status" }) });
    const label = "Search calls", folds = [["open all", true], ["close all", false]];
    this.search = element("input", [], "", { type: "search", placeholder: label, "aria-label": label });
    this.counts = element("span");
    this.shown = element("span", [], "choice", { role: "group", "aria-label": "Shown" });
    this.place = element("select", [], "", { "aria-label": "Ranks and steps" });
    this.#choosePlace();
    this.#searchCalls();
    this.box = element("div", [
      this.place, this.#chooseSide(), this.shown, this.search, this.found, this.counts,
      ...folds.map(([text, isOpen]) => button(text, () => this.view.foldAll(isOpen))), this.#help(),
    ], "controls bar");
  }

  /* Another run is shown. */
  changed() {
    const { place, side } = this.view;
    this.place.value = String(place);
    for (const [name, one] of Object.entries(this.sides)) one.setAttribute("aria-pressed", String(name === side));
    this.#count();
    this.#find();
  }

  #choosePlace() {
    this.place.hidden = this.view.graphs.length < 2;
    choices(this.place, this.view.graphs.map((graph, at) => [graph.place, at]), (place) => {
      // The same call in the other run, if there is one.
      const name = this.view.name();
      this.view.show(Number(place), "target");
      this.view.goTo(this.view.at.tree.find(name));
    });
  }

  #chooseSide() {
    const sides = this.view.graphs.some((graph) => graph.golden) ? ["target", "golden"] : [];
    for (const side of sides) {
      this.sides[side] = button(side, () => {
        if (this.view.side === side) return;
        if (this.view.partner() > 0) this.view.goToPartner();
        else this.view.show(this.view.place, side);
      });
    }
    return element("span", Object.values(this.sides), "choice", { role: "group", "aria-label": "Run" });
  }

  #searchCalls() {
    this.search.addEventListener("input", () => this.#find());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.#goToHit(!event.shiftKey);
      if (event.key === "Escape") this.view.scroller.focus();
    });
  }

  #find() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const isHit = (name) => words.every((word) => name.toLowerCase().includes(word));
    // The root is not shown.
    const { names } = this.view.at.tree.run;
    this.hits = words.length ? names.flatMap((name, node) => (node && isHit(name) ? [node] : [])) : [];
    this.found.textContent = words.length ? `${this.hits.length} found` : "";
  }

  #goToHit(forwards) {
    const { hits } = this, { chosen } = this.view.at;
    if (!hits.length) return;
    const after = forwards ? hits.findIndex((node) => node > chosen) : hits.findLastIndex((node) => node < chosen);
    const place = after >= 0 ? after : forwards ? 0 : hits.length - 1;
    this.view.goTo(hits[place]);
    this.found.textContent = `${place + 1} of ${hits.length} found`;
  }

  #count() {
    this.counts.replaceChildren(...["f", "w"].flatMap((letter) => {
      const count = this.view.at.tree.run.outcomes.split(letter).length - 1, outcome = GRAPH_OUTCOMES[letter];
      const made = button(`${count} ${outcome}`, () => this.view.next(letter), outcome);
      return count ? [filled(made, [], { title: `to the next ${outcome}` })] : [];
    }));
  }

  #help() {
    const keys = GRAPH_KEYS.flatMap(([key, text]) => [element("dt", key), element("dd", text)]);
    const lines = GRAPH_LINES.flatMap(([kind, text]) => [element("dt", [], `sample ${kind}`), element("dd", text)]);
    return element("details", [element("summary", "keys and lines"), element("dl", [...keys, ...lines])], "keys");
  }
}
