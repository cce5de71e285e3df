/* The graph of a page: what is chosen and open in it, what its keys do. */

const GRAPH_KEYS = [
  ["↑ ↓", "the block above, below"], ["→ ←", "open and enter, close and leave"], ["Home End", "first, last"], ["Enter", "open or close"],
  ["n p", "next, previous failure"], ["c", "first culprit"], ["i o", "to where its input comes from, where its output goes"],
  ["g", "to the golden run and back"], ["b", "to its backward call and back"], ["r", "to the partner on another rank"],
  ["t", "its numbers and failure text"], ["/", "search; Enter goes to the next, ⇧Enter to the one before"],
];
const GRAPH_LINES = [
  ["given", "what the chosen call was given"], ["taken", "what it returned"], ["wrong", "what a wrong call returned"], ["warned", "what one with a warning returned"],
  ["plain uncertain", "another call made equal values: the nearest is shown"],
];

function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

class GraphView {
  /* `host` tells what the page knows of a call: describe(place, side, node) gives its failure, facts, call stack and
     actions, brief(place, side, node) what it returned, in few words. */
  constructor(box, graphs, host) {
    this.graphs = graphs;
    this.host = host;
    this.opened = new Map();
    this.hits = [];
    this.#build(box);
    this.start();
  }

  /* Which run is shown. */

  show(place, side, node = -1) {
    this.place = place;
    this.side = side;
    const key = `${place} ${side}`;
    if (!this.opened.has(key)) {
      const run = this.graphs[place][side];
      this.opened.set(key, { tree: new ModuleTree(run), flow: new DataFlow(run), chosen: -1 });
    }
    this.at = this.opened.get(key);
    this.parts.place.value = String(place);
    for (const [name, button] of Object.entries(this.parts.sides)) button.setAttribute("aria-pressed", String(name === side));
    this.#count();
    this.changed();
    this.search(this.parts.search.value);
    if (node >= 0) this.goTo(node);
    else this.describe();
  }

  /* The first culprit, or else what is worst, in the first graph that has any. */
  start() {
    for (const [of, letter] of [["causes", "c"], ["outcomes", "f"], ["outcomes", "w"]]) {
      const place = this.graphs.findIndex(({ target }) => target[of].includes(letter));
      if (place >= 0) return this.show(place, "target", this.graphs[place].target[of].indexOf(letter));
    }
    this.show(0, "target");
    if (this.at.tree.rows.length) this.choose(this.at.tree.rows[0]);
  }

  /* Which call is chosen. */

  choose(node) {
    this.at.chosen = node;
    this.describe();
    this.scrollTo(node);
    this.draw();
  }

  goTo(node) {
    if (node <= 0) return;
    if (!this.at.tree.isShown(node)) {
      this.at.tree.reveal(node);
      this.changed();
    }
    this.choose(node);
  }

  fold(node, isOpen) {
    const { tree, chosen } = this.at;
    tree.setOpen(node, isOpen);
    this.changed();
    if (chosen > 0 && !tree.isShown(chosen)) this.choose(node);
    else this.draw();
  }

  changed() {
    this.at.flow.lift(this.at.tree);
    this.parts.canvas.style.height = `${this.at.tree.rows.length * GRAPH_ROW + 8}px`;
  }

  scrollTo(node) {
    const box = this.parts.scroller, top = this.at.tree.rowOf[node] * GRAPH_ROW;
    if (top < box.scrollTop || top + GRAPH_ROW > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, top - box.clientHeight / 2);
  }

  draw() {
    const { tree, flow, chosen } = this.at, box = this.parts.scroller;
    if (!box.clientHeight) return;
    const first = Math.max(0, Math.floor(box.scrollTop / GRAPH_ROW) - 6);
    const last = Math.min(tree.rows.length, first + Math.ceil(box.clientHeight / GRAPH_ROW) + 12);
    this.drawing.draw(tree, flow, chosen, Math.min(first, last), last, (node) => this.host.brief(this.place, this.side, node));
    if (chosen > 0) box.setAttribute("aria-activedescendant", `call-${tree.rows[tree.rowOf[chosen]]}`);
  }

  /* Where to go from a call. */

  next(letter, forwards = true) {
    const { outcomes } = this.at.tree.run, from = this.at.chosen;
    const found = forwards ? outcomes.indexOf(letter, from + 1) : from > 0 ? outcomes.lastIndexOf(letter, from - 1) : -1;
    this.goTo(found > 0 ? found : forwards ? outcomes.indexOf(letter) : outcomes.lastIndexOf(letter));
  }

  partner() {
    const { partners } = this.graphs[this.place], node = this.at.chosen;
    if (!partners || node < 0) return -1;
    return this.side === "target" ? partners[node] : partners.indexOf(node);
  }

  twin() {
    const name = this.at.tree.run.names[this.at.chosen] ?? "";
    const [one, other] = /\.backward(\.\d+)?$/.test(name) ? [/\.backward(\.\d+)?$/, ".forward$1"] : [/\.forward(\.\d+)?$/, ".backward$1"];
    return one.test(name) ? this.at.tree.find(name.replace(one, other)) : -1;
  }

  links() {
    return this.side !== "target" ? [] : this.graphs[this.place].links.filter(([node]) => node === this.at.chosen);
  }

  goToPartner() {
    const node = this.partner();
    if (node > 0) this.show(this.place, this.side === "target" ? "golden" : "target", node);
  }

  goToRank() {
    const [link] = this.links();
    if (link) this.show(link[1], "target", link[2]);
  }

  /* Search. */

  search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean), { names } = this.at.tree.run;
    this.hits = [];
    if (words.length) names.forEach((name, node) => { if (node && words.every((word) => name.toLowerCase().includes(word))) this.hits.push(node); });
    this.parts.found.textContent = words.length ? `${this.hits.length} found` : "";
  }

  goToHit(forwards) {
    if (!this.hits.length) return;
    const after = forwards ? this.hits.findIndex((node) => node > this.at.chosen) : this.hits.findLastIndex((node) => node < this.at.chosen);
    const place = after >= 0 ? after : forwards ? 0 : this.hits.length - 1;
    this.goTo(this.hits[place]);
    this.parts.found.textContent = `${place + 1} of ${this.hits.length} found`;
  }

  /* Keys, as those of any tree, and some that follow the data. */

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { tree, flow, chosen } = this.at, row = chosen > 0 ? tree.rowOf[chosen] : 0, node = tree.rows[row];
    const to = (place) => this.choose(tree.rows[Math.max(0, Math.min(tree.rows.length - 1, place))]);
    const page = Math.max(1, Math.floor(this.parts.scroller.clientHeight / GRAPH_ROW) - 1);
    const keys = {
      ArrowDown: () => to(row + 1), ArrowUp: () => to(row - 1), Home: () => to(0), End: () => to(tree.rows.length - 1),
      PageDown: () => to(row + page), PageUp: () => to(row - page),
      ArrowRight: () => (tree.isBlock(node) && !tree.open[node] ? this.fold(node, true) : tree.isBlock(node) && to(row + 1)),
      ArrowLeft: () => (tree.isBlock(node) && tree.open[node] ? this.fold(node, false) : tree.run.parents[node] > 0 && this.choose(tree.run.parents[node])),
      Enter: () => this.fold(node, !tree.open[node]), " ": () => this.fold(node, !tree.open[node]),
      n: () => this.next("f"), p: () => this.next("f", false), c: () => this.goTo(tree.run.causes.indexOf("c")),
      i: () => this.goTo(flow.given(chosen, tree.last[chosen])[0]?.other), o: () => this.goTo(flow.taken(chosen, tree.last[chosen])[0]?.other),
      g: () => this.goToPartner(), b: () => this.goTo(this.twin()), r: () => this.goToRank(),
      t: () => this.parts.details.focus(), "/": () => this.parts.search.focus(),
    };
    if (!tree.rows.length || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  /* What is known of the chosen call. */

  describe() {
    const box = this.parts.details, { tree, flow, chosen: node } = this.at;
    box.hidden = node <= 0;
    if (node <= 0) return;
    const { failure, facts, stack, actions } = this.host.describe(this.place, this.side, node), last = tree.last[node];
    const head = element("h2", tree.run.names[node]), line = element("p", undefined, "verdict"), ways = element("p", undefined, "ways");
    const cause = { c: ", the difference begins here", i: ", inherited" }[tree.run.causes[node]] ?? "";
    if (tree.outcome(node)) line.append(element("span", tree.outcome(node), tree.outcome(node)), cause);
    const inside = last > node ? `${tree.wrong[node] ? `${tree.wrong[node]} wrong of ` : ""}${plural(last - node, "call")} inside` : "";
    if (inside) line.append(element("span", `${tree.outcome(node) ? "; " : ""}${inside}`));
    const way = (text, go) => { const button = element("button", text); button.addEventListener("click", go); ways.append(button); };
    if (this.partner() > 0) way(this.side === "target" ? "golden call (g)" : "target's call (g)", () => this.goToPartner());
    if (this.twin() > 0) way(`${/\.backward(\.\d+)?$/.test(tree.run.names[node]) ? "forward" : "backward"} call (b)`, () => this.goTo(this.twin()));
    for (const [, place, other] of this.links()) way(`partner: ${this.graphs[place].place}`, () => this.show(place, "target", other));
    for (const [text, go] of actions) way(text, go);
    box.replaceChildren(
      head, line, ways, ...this.#text("", failure), ...this.#ends("comes from", flow.given(node, last), node),
      ...this.#ends("goes to", flow.taken(node, last), node), this.#facts(facts), ...this.#text("called at", stack),
    );
    box.scrollTop = 0;
  }

  #text(title, text) {
    return text ? [element("div", title, "title"), element("pre", text)] : [];
  }

  #facts(facts) {
    const list = element("dl");
    for (const [name, value] of facts) if (value) list.append(element("dt", name), element("dd", value));
    return list;
  }

  #ends(title, edges, chosen) {
    if (!edges.length) return [];
    const list = element("ul"), { tree } = this.at;
    for (const edge of edges.slice(0, 30)) {
      const item = element("li"), link = element("button", tree.run.names[edge.other], tree.outcome(edge.other));
      link.addEventListener("click", () => this.goTo(edge.other));
      const here = edge.node === chosen ? edge.place : `${tree.label(edge.node)[0]} ${edge.place}`;
      item.append(element("span", `${here || "a gradient"} `), link, element("span", edge.otherPlace ? ` ${edge.otherPlace}` : ""));
      if (edge.known) item.append(element("div", edge.known, "known"));
      list.append(item);
    }
    if (edges.length > 30) list.append(element("li", `and ${edges.length - 30} more`));
    return [element("div", title, "title"), list];
  }

  /* What the view is made of. */

  #build(box) {
    const place = element("select"), found = element("span"), search = element("input"), sides = {}, counts = element("span");
    place.setAttribute("aria-label", "Ranks and steps");
    this.graphs.forEach((graph, at) => { const option = element("option", graph.place); option.value = String(at); place.append(option); });
    place.hidden = this.graphs.length < 2;
    place.addEventListener("change", () => { this.show(Number(place.value), "target"); this.draw(); });
    const bar = element("div", undefined, "bar"), both = element("span");
    both.setAttribute("role", "group");
    both.setAttribute("aria-label", "Run");
    if (this.graphs.some((graph) => graph.golden)) {
      for (const side of ["target", "golden"]) {
        sides[side] = element("button", side);
        sides[side].addEventListener("click", () => { if (this.side !== side) { if (this.partner() > 0) this.goToPartner(); else { this.show(this.place, side); this.draw(); } } });
        both.append(sides[side]);
      }
    }
    Object.assign(search, { type: "search", placeholder: "Search calls" });
    search.setAttribute("aria-label", "Search calls");
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.goToHit(!event.shiftKey);
      if (event.key === "Escape") scroller.focus();
    });
    found.setAttribute("role", "status");
    const fold = (text, isOpen) => {
      const button = element("button", text);
      button.addEventListener("click", () => { this.at.tree.setAllOpen(isOpen); this.changed(); if (this.at.chosen > 0) this.scrollTo(this.at.chosen); this.draw(); });
      return button;
    };
    const keys = element("details", undefined, "keys"), list = element("dl");
    for (const [key, text] of GRAPH_KEYS) list.append(element("dt", key), element("dd", text));
    for (const [kind, text] of GRAPH_LINES) list.append(element("dt", undefined, `sample ${kind}`), element("dd", text));
    keys.append(element("summary", "keys and lines"), list);
    bar.append(place, both, search, found, counts, fold("open all", true), fold("close all", false), keys);
    const scroller = element("div", undefined, "scroller"), canvas = element("div", undefined, "canvas"), details = element("aside");
    scroller.tabIndex = 0;
    scroller.setAttribute("role", "tree");
    scroller.setAttribute("aria-label", "Modules and calls");
    details.tabIndex = -1;
    details.setAttribute("aria-label", "The chosen call");
    details.hidden = true;
    canvas.setAttribute("role", "presentation");
    scroller.append(canvas);
    scroller.addEventListener("keydown", (event) => this.press(event));
    scroller.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()));
    canvas.addEventListener("click", (event) => {
      const call = event.target.closest("[data-node]");
      if (!call) return;
      const node = Number(call.dataset.node), isFold = event.target.className === "fold" || node === this.at.chosen;
      this.choose(node);
      if (isFold) this.fold(node, !this.at.tree.open[node]);
    });
    const middle = element("div", undefined, "middle");
    middle.append(scroller, details);
    box.classList.add("graph");
    box.replaceChildren(bar, middle);
    new ResizeObserver(() => this.draw()).observe(scroller);
    this.drawing = new GraphDrawing(canvas);
    this.parts = { place, sides, search, found, counts, scroller, canvas, details };
  }

  #count() {
    const { outcomes } = this.at.tree.run, made = [];
    for (const letter of "fw") {
      const count = outcomes.split(letter).length - 1;
      if (!count) continue;
      const button = element("button", `${count} ${GRAPH_OUTCOMES[letter]}`, GRAPH_OUTCOMES[letter]);
      button.title = `to the next ${GRAPH_OUTCOMES[letter]}`;
      button.addEventListener("click", () => this.next(letter));
      made.push(button);
    }
    this.parts.counts.replaceChildren(...made);
  }
}
