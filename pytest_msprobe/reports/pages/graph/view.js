/* The graph of a page: which run is shown, what is chosen and open in it, what its keys do. */

const IS_BACKWARD = /\.backward(\.\d+)?$/, IS_FORWARD = /\.forward(\.\d+)?$/;

class GraphView {
  /* `host` is what the page knows of a call: describe(place, side, node) gives its failure, facts, call stack and
     actions, elements with commands, brief(place, side, node) what it returned, in few words; `went` is called when
     another call is chosen. */
  constructor(box, graphs, host) {
    Object.assign(this, { graphs, host, opened: new Map() });
    this.outline = new GraphOutline(this);
    this.bar = new GraphBar(this);
    this.details = new GraphDetails(this);
    this.boxes = new BoxesView(this);
    const drawings = element("div", [
      graphPane("outline", "Outline", [this.outline.box], { "data-size": 420 }),
      graphPane("boxes", "Boxes and edges", this.boxes.parts, {}),
    ], "panes drawings", { "data-direction": "row" });
    const details = graphPane("details", "The chosen call", [this.details.box], { "data-size": 340 });
    const all = element("div", [drawings, details], "panes", { "data-direction": "row" });
    box.classList.add("graph");
    box.replaceChildren(this.bar.box, all);
    [drawings, all].forEach(makePanes);
    this.#start();
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
    Object.assign(this, { place, side });
    const key = `${place} ${side}`;
    if (!this.opened.has(key)) {
      const run = this.graphs[place][side], tree = new ModuleTree(run);
      const flow = new DataFlow(run), layout = new BoxesLayout(tree, flow);
      this.opened.set(key, { tree, flow, layout, chosen: tree.rows[0] ?? -1 });
    }
    this.at = this.opened.get(key);
    this.bar.changed();
    this.choose(node);
  }

  /* Which call is chosen, and which blocks are open. */

  name() { return this.at.tree.run.names[this.at.chosen] ?? ""; }

  /* Choose a call, if there is one, and open what is around it. */
  choose(node) {
    if (node > 0) this.at.chosen = node;
    this.at.tree.reveal(this.at.chosen);
    this.details.show();
    this.draw();
    this.outline.bring(this.at.chosen);
    this.host.went?.();
  }

  fold(node, isOpen) {
    const { tree, chosen } = this.at;
    if (!tree.isBlock(node)) return;
    tree.setOpen(node, isOpen);
    this.choose(tree.rows[tree.rowOf[chosen]]);
  }

  foldAll(isOpen) {
    const { tree, chosen } = this.at;
    tree.setAllOpen(isOpen);
    this.choose(tree.rows[tree.rowOf[chosen]]);
  }

  draw() {
    this.outline.draw();
    this.boxes.show();
  }

  /* Where to go from a call. */

  next(letter, forwards = true) {
    const nodes = [...this.at.tree.run.outcomes].flatMap((one, node) => (one === letter ? [node] : []));
    this.choose(nodes.at(this.nextPlace(nodes, forwards)));
  }

  /* The place in a list of calls of the next after the chosen one, or of that before it; -1 is that of the last. */
  nextPlace(nodes, forwards) {
    const { chosen } = this.at;
    if (!forwards) return nodes.findLastIndex((node) => node < chosen);
    return Math.max(0, nodes.findIndex((node) => node > chosen));
  }

  partner() {
    const { partners } = this.graphs[this.place], node = this.at.chosen;
    if (!partners || node < 0) return -1;
    return this.side === "target" ? partners[node] : partners.indexOf(node);
  }

  goToPartner() {
    const node = this.partner();
    if (node > 0) this.show(this.place, this.side === "target" ? "golden" : "target", node);
  }

  twin() {
    const name = this.name(), { names } = this.at.tree.run;
    if (IS_BACKWARD.test(name)) return names.indexOf(name.replace(IS_BACKWARD, ".forward$1"));
    return IS_FORWARD.test(name) ? names.indexOf(name.replace(IS_FORWARD, ".backward$1")) : -1;
  }

  /* The partners of a communication on other ranks, each with what shows it. */
  links() {
    const links = this.side === "target" ? this.graphs[this.place].links : [];
    return links.filter(([node]) => node === this.at.chosen)
      .map(([, place, node]) => [this.graphs[place].place, () => this.show(place, "target", node)]);
  }

  /* What an address needs to lead to the chosen call: its name, after that of its run where there are several. */
  fragment() { return this.#prefix(this.place) + this.name(); }
  #prefix(place) { return this.graphs.length > 1 ? `${this.graphs[place].place}::` : ""; }

  /* Show the call of a fragment; return whether there is one. */
  follow(fragment) {
    const place = this.graphs.findIndex((_, at) => fragment.startsWith(this.#prefix(at)));
    const node = this.graphs[place]?.target.names.indexOf(fragment.slice(this.#prefix(place).length));
    if (node > 0) this.show(place, "target", node);
    return node > 0;
  }

  /* The keys that outline and boxes share. */
  keys() {
    const { tree, flow, chosen } = this.at, last = tree.last[chosen];
    const fold = () => this.fold(chosen, !tree.isOpen(chosen));
    return {
      Enter: fold, " ": fold, n: () => this.next("f"), p: () => this.next("f", false),
      c: () => this.choose(tree.run.causes.indexOf("c")),
      i: () => this.choose(flow.given(chosen, last)[0]?.other),
      o: () => this.choose(flow.taken(chosen, last)[0]?.other),
      g: () => this.goToPartner(), b: () => this.choose(this.twin()), r: () => this.links()[0]?.[1](),
      t: () => this.details.box.focus(),
    };
  }

  /* Go to the outline or the boxes, which are shown where they were not. */
  enter(name) {
    openPane(`graph-${name}`);
    this[name].box.focus();
  }
}

function graphPane(name, title, parts, facts) {
  return element("section", parts, "pane", { id: `graph-${name}`, "aria-label": title, ...facts });
}
