/* The bar above a graph: which run, the search, how much is wrong, what the keys and lines are. */

const GRAPH_KEYS = [
  ["↑ ↓", "the block above, below"], ["→ ←", "open and enter, close and leave"], ["Home End", "first, last"], ["Enter", "open or close"],
  ["n p", "next, previous failure"], ["c", "first culprit"], ["i o", "to where its input comes from, where its output goes"],
  ["g", "to the golden run and back"], ["b", "to its backward call and back"], ["r", "to the partner on another rank"],
  ["t", "its numbers and failure text"], ["x", "to the boxes and back"], ["+ - 0", "zoom the boxes, see all of them"], ["Esc", "in the boxes: out to the module"], ["/", "search; Enter goes to the next, ⇧Enter to the one before"],
];
const GRAPH_LINES = [
  ["given", "what the chosen call was given"], ["taken", "what it returned"], ["wrong", "what a wrong call returned"], ["warned", "what one with a warning returned"],
  ["plain uncertain", "another call made equal values: the nearest is shown"],
];

class GraphBar {
  constructor(view) {
    this.view = view;
    this.hits = [];
    this.sides = {};
    this.place = element("select");
    this.search = element("input");
    this.found = element("span");
    this.counts = element("span");
    this.box = element("div", undefined, "controls bar");
    this.#choosePlace();
    this.#searchCalls();
    this.shown = element("span", undefined, "choice");
    this.box.append(this.place, this.#chooseSide(), this.shown, this.search, this.found, this.counts, this.#foldAll("open all", true), this.#foldAll("close all", false), this.#help());
  }

  /* Another run is shown. */
  changed() {
    const { place, side } = this.view;
    this.place.value = String(place);
    for (const [name, button] of Object.entries(this.sides)) button.setAttribute("aria-pressed", String(name === side));
    this.#count();
    this.#find();
  }

  #choosePlace() {
    this.view.graphs.forEach((graph, at) => {
      const option = element("option", graph.place);
      option.value = String(at);
      this.place.append(option);
    });
    this.place.hidden = this.view.graphs.length < 2;
    this.place.setAttribute("aria-label", "Ranks and steps");
    // The same call in the other run, if there is one.
    this.place.addEventListener("change", () => {
      const name = this.view.name();
      this.view.show(Number(this.place.value), "target");
      this.view.goTo(this.view.at.tree.find(name));
    });
  }

  #chooseSide() {
    const both = element("span", undefined, "choice");
    both.setAttribute("role", "group");
    both.setAttribute("aria-label", "Run");
    if (!this.view.graphs.some((graph) => graph.golden)) return both;
    for (const side of ["target", "golden"]) {
      this.sides[side] = element("button", side);
      this.sides[side].addEventListener("click", () => {
        if (this.view.side === side) return;
        if (this.view.partner() > 0) this.view.goToPartner();
        else this.view.show(this.view.place, side);
      });
      both.append(this.sides[side]);
    }
    return both;
  }

  #searchCalls() {
    Object.assign(this.search, { type: "search", placeholder: "Search calls" });
    this.search.setAttribute("aria-label", "Search calls");
    this.found.setAttribute("role", "status");
    this.search.addEventListener("input", () => this.#find());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.#goToHit(!event.shiftKey);
      if (event.key === "Escape") this.view.scroller.focus();
    });
  }

  #find() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const isHit = (name) => words.every((word) => name.toLowerCase().includes(word));
    this.hits = [];
    // The root is not shown.
    if (words.length) this.view.at.tree.run.names.forEach((name, node) => { if (node && isHit(name)) this.hits.push(node); });
    this.found.textContent = words.length ? `${this.hits.length} found` : "";
  }

  #goToHit(forwards) {
    if (!this.hits.length) return;
    const { chosen } = this.view.at;
    const after = forwards ? this.hits.findIndex((node) => node > chosen) : this.hits.findLastIndex((node) => node < chosen);
    const place = after >= 0 ? after : forwards ? 0 : this.hits.length - 1;
    this.view.goTo(this.hits[place]);
    this.found.textContent = `${place + 1} of ${this.hits.length} found`;
  }

  #count() {
    this.counts.replaceChildren(...["f", "w"].flatMap((letter) => {
      const count = this.view.at.tree.run.outcomes.split(letter).length - 1, outcome = GRAPH_OUTCOMES[letter];
      if (!count) return [];
      const button = element("button", `${count} ${outcome}`, outcome);
      button.title = `to the next ${outcome}`;
      button.addEventListener("click", () => this.view.next(letter));
      return [button];
    }));
  }

  #foldAll(text, isOpen) {
    const button = element("button", text);
    button.addEventListener("click", () => this.view.foldAll(isOpen));
    return button;
  }

  #help() {
    const help = element("details", undefined, "keys"), list = element("dl");
    for (const [key, text] of GRAPH_KEYS) list.append(element("dt", key), element("dd", text));
    for (const [kind, text] of GRAPH_LINES) list.append(element("dt", undefined, `sample ${kind}`), element("dd", text));
    help.append(element("summary", "keys and lines"), list);
    return help;
  }
}
