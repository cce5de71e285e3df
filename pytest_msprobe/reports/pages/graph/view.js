/* The graph of a page: which run is shown, what is chosen and open in it, what its keys do. */

const IS_BACKWARD = /\.backward(\.\d+)?$/, IS_FORWARD = /\.forward(\.\d+)?$/;

class GraphView {
  /* `host` is what the page knows of a call: describe(place, side, node) gives its failure, facts, call stack and
     actions, elements with commands, brief(place, side, node) what it returned, in few words; `went` is called when another
     call is chosen. */
  constructor(box, graphs, host) {
    this.graphs = graphs;
    this.host = host;
    this.opened = new Map();
    this.scroller = this.#makeScroller();
    this.bar = new GraphBar(this);
    this.details = new GraphDetails(this);
    this.boxes = new BoxesView(this);
    const middle = element("div", [
      graphPane("outline", "Outline", [this.scroller], { "data-size": 480 }),
      graphPane("boxes", "Boxes and edges", this.boxes.parts, {}),
      graphPane("details", "The chosen call", [this.details.box], { "data-size": 340 }),
    ], "panes", { "data-direction": "row" });
    box.classList.add("graph");
    box.replaceChildren(this.bar.box, middle);
    this.box = box;
    makePanes(middle);
    this.shown = new ShownViews(this);
    this.#start();
  }

  #makeScroller() {
    const canvas = element("div", [], "canvas", { role: "presentation" });
    const facts = { tabindex: 0, role: "tree", "aria-label": "Modules and calls" };
    const scroller = element("div", canvas, "scroller", facts);
    onKeys(scroller, () => this.#outlineKeys());
    scroller.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()));
    canvas.addEventListener("click", (event) => this.#click(event.target));
    new ResizeObserver(() => this.draw()).observe(scroller);
    this.drawing = new GraphDrawing(canvas);
    return scroller;
  }

  /* Begin at the first culprit, or else at what is worst, in the first graph that has any. */
  #start() {
    for (const [of, letter] of [["causes", "c"], ["outcomes", "f"], ["outcomes", "w"]]) {
      const place = this.graphs.findIndex(({ target }) => target[of].includes(letter));
      if (place >= 0) return this.show(place, "target", this.graphs[place].target[of].indexOf(letter));
    }
    this.show(0, "target");
  }

  /* Which run is shown. */

  show(place, side, node = -1) {
    this.place = place;
    this.side = side;
    const key = `${place} ${side}`;
    if (!this.opened.has(key)) {
      const run = this.graphs[place][side], tree = new ModuleTree(run);
      this.opened.set(key, { tree, flow: new DataFlow(run), chosen: tree.rows[0] ?? -1 });
    }
    this.at = this.opened.get(key);
    this.bar.changed();
    this.#changed();
    if (node > 0) this.goTo(node);
    else this.choose(this.at.chosen);
  }

  /* Which call is chosen, and which blocks are open. */

  name() { return this.at.tree.run.names[this.at.chosen] ?? ""; }

  choose(node) {
    this.at.chosen = node;
    this.details.show();
    this.#scrollTo(node);
    this.draw();
    this.boxes.show();
    this.host.went?.();
  }

  goTo(node) {
    if (!(node > 0)) return;
    if (!this.at.tree.isShown(node)) {
      this.at.tree.reveal(node);
      this.#changed();
    }
    this.choose(node);
  }

  fold(node, isOpen) {
    const { tree, chosen } = this.at;
    tree.setOpen(node, isOpen);
    this.#changed();
    if (chosen > 0 && !tree.isShown(chosen)) this.choose(node);
    else this.draw();
  }

  foldAll(isOpen) {
    const { tree, chosen } = this.at;
    tree.setAllOpen(isOpen);
    this.#changed();
    this.choose(chosen > 0 ? tree.rows[tree.rowOf[chosen]] : chosen);
  }

  #changed() {
    this.at.flow.lift(this.at.tree);
    this.drawing.resize(this.at.tree.rows.length);
  }

  #scrollTo(node) {
    if (node <= 0) return;
    const box = this.scroller, top = this.at.tree.rowOf[node] * GRAPH_ROW;
    if (top < box.scrollTop || top + GRAPH_ROW > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, top - box.clientHeight / 2);
  }

  draw() {
    const { tree, flow, chosen } = this.at, box = this.scroller;
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
    const name = this.name();
    if (IS_BACKWARD.test(name)) return this.at.tree.find(name.replace(IS_BACKWARD, ".forward$1"));
    return IS_FORWARD.test(name) ? this.at.tree.find(name.replace(IS_FORWARD, ".backward$1")) : -1;
  }

  links() {
    return this.side !== "target" ? [] : this.graphs[this.place].links.filter(([node]) => node === this.at.chosen);
  }

  /* What the address of a page needs to lead to the chosen call: its name, after that of its run where there are several. */
  fragment() {
    const graph = this.graphs[this.place];
    return this.graphs.length > 1 ? `${graph.place}::${this.name()}` : this.name();
  }

  /* Show the call of a fragment; return whether there is one. */
  follow(fragment) {
    const place = this.graphs.length > 1 ? this.graphs.findIndex((graph) => fragment.startsWith(`${graph.place}::`)) : 0;
    if (place < 0) return false;
    const name = this.graphs.length > 1 ? fragment.slice(`${this.graphs[place].place}::`.length) : fragment;
    const node = this.graphs[place].target.names.indexOf(name);
    if (node > 0) this.show(place, "target", node);
    return node > 0;
  }

  goToPartner() {
    const node = this.partner();
    if (node > 0) this.show(this.place, this.side === "target" ? "golden" : "target", node);
  }

  goToRank() {
    const [link] = this.links();
    if (link) this.show(link[1], "target", link[2]);
  }

  /* The keys that outline and boxes share. */
  keys() {
    const { tree, flow, chosen } = this.at;
    return {
      n: () => this.next("f"), p: () => this.next("f", false), c: () => this.goTo(tree.run.causes.indexOf("c")),
      i: () => this.goTo(flow.given(chosen, tree.last[chosen])[0]?.other), o: () => this.goTo(flow.taken(chosen, tree.last[chosen])[0]?.other),
      g: () => this.goToPartner(), b: () => this.goTo(this.twin()), r: () => this.goToRank(),
      t: () => this.details.box.focus(), "/": () => this.bar.search.focus(),
    };
  }

  /* Go to the outline or the boxes, which are shown where they were not. */
  enter(name) {
    this.shown.show(name);
    (name === "boxes" ? this.boxes.box : this.scroller).focus();
  }

  /* Keys of the outline are those of any tree. */

  #outlineKeys() {
    const { tree, chosen } = this.at, row = chosen > 0 ? tree.rowOf[chosen] : 0, node = tree.rows[row];
    if (!tree.rows.length) return {};
    const isBlock = tree.isBlock(node), isOpen = isBlock && tree.open[node], parent = tree.run.parents[node];
    const to = (place) => this.choose(tree.rows[Math.max(0, Math.min(tree.rows.length - 1, place))]);
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / GRAPH_ROW) - 1);
    return {
      ArrowDown: () => to(row + 1), ArrowUp: () => to(row - 1), Home: () => to(0), End: () => to(tree.rows.length - 1),
      PageDown: () => to(row + page), PageUp: () => to(row - page),
      ArrowRight: () => (isBlock && !isOpen ? this.fold(node, true) : isBlock && to(row + 1)),
      ArrowLeft: () => (isOpen ? this.fold(node, false) : parent > 0 && this.choose(parent)),
      Enter: () => this.fold(node, !tree.open[node]), " ": () => this.fold(node, !tree.open[node]),
      ...this.keys(), x: () => this.enter("boxes"),
    };
  }

  #click(target) {
    const call = target.closest("[data-node]");
    if (!call) return;
    const node = Number(call.dataset.node), isFold = target.className === "fold" || node === this.at.chosen;
    this.choose(node);
    if (isFold) this.fold(node, !this.at.tree.open[node]);
  }
}

function graphPane(name, title, parts, facts) {
  return element("section", parts, "pane", { id: `graph-${name}`, "aria-label": title, ...facts });
}
