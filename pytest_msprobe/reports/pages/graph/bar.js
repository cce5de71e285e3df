/* The bar above a graph: which run, the search, how much is wrong, what the keys and lines are. */

const GRAPH_KEYS = [
  ["↑ ↓", "the block above, below"], ["→ ←", "open and enter, close and leave"], ["Enter", "open or close"],
  ["n p", "next, previous failure"], ["c", "first culprit"],
  ["i o", "to where its input comes from, where its output goes"], ["g", "to the golden run and back"],
  ["b", "to its backward call and back"], ["r", "to the partner on another rank"],
  ["t", "its numbers and failure text"], ["x", "to the boxes and back"], ["+ - 0", "zoom the boxes, see all of them"],
  ["Esc", "in the boxes: out to the module"], ["/", "search; Enter goes to the next, ⇧Enter to the one before"],
];
const GRAPH_LINES = [
  ["given", "what the chosen call was given"], ["taken", "what it returned"], ["fail", "what a wrong call returned"],
  ["warn", "what one with a warning returned"], ["uncertain", "another call made equal values: the nearest is shown"],
];

class GraphBar {
  constructor(view) {
    Object.assign(this, { view, hits: [], found: element("span", [], "", { role: "status" }) });
    const label = "Search calls", placeholder = `${label} ( / )`;
    this.search = element("input", [], "", { type: "search", placeholder, "aria-label": label });
    onSlash(this.search);
    this.search.addEventListener("input", () => this.#find());
    this.search.addEventListener("keydown", ({ key, shiftKey }) => {
      if (key === "Enter") this.#goToHit(!shiftKey);
      if (key === "Escape") view.outline.box.focus();
    });
    this.counts = element("span");
    const folds = [button("open all", () => view.foldAll(true)), button("close all", () => view.foldAll(false))];
    this.box = element("div", [this.#runs(), this.search, this.found, this.counts, ...folds, help()], "controls bar");
  }

  /* The runs of the page, to choose one of. In another run the same call is shown, if there is one. */
  #runs() {
    const { view } = this, runs = view.graphs.flatMap((graph, place) => ["target", "golden"].flatMap((side) => {
      const words = [view.graphs.length > 1 ? graph.place : "", graph.golden ? side : ""].filter(Boolean);
      return graph[side] ? [[words.join(", "), `${place} ${side}`]] : [];
    }));
    this.run = choices(element("select", [], "", { "aria-label": "Run" }), runs, (value) => {
      const [place, side] = value.split(" "), partner = Number(place) === view.place ? view.partner() : -1;
      view.show(Number(place), side, partner > 0 ? partner : view.graphs[place][side].names.indexOf(view.name()));
    });
    this.run.hidden = runs.length < 2;
    return this.run;
  }

  /* Another run is shown. */
  changed() {
    const { place, side, at } = this.view;
    this.run.value = `${place} ${side}`;
    this.counts.replaceChildren(...["f", "w"].flatMap((letter) => {
      const count = at.tree.run.outcomes.split(letter).length - 1, outcome = GRAPH_OUTCOMES[letter];
      const made = button(`${count} ${outcome}`, () => this.view.next(letter), outcome);
      return count ? [filled(made, [], { title: `to the next ${outcome}` })] : [];
    }));
    this.#find();
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
    const { hits } = this, place = this.view.nextPlace(hits, forwards);
    this.view.choose(hits.at(place));
    if (hits.length) this.found.textContent = `${place < 0 ? hits.length : place + 1} of ${hits.length} found`;
  }
}

function help() {
  const keys = GRAPH_KEYS.flatMap(([key, text]) => [element("dt", key), element("dd", text)]);
  const lines = GRAPH_LINES.flatMap(([kind, text]) => [element("dt", [], `sample ${kind}`), element("dd", text)]);
  return element("details", [element("summary", "keys and lines"), element("dl", [...keys, ...lines])], "keys");
}
