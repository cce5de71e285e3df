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
      this.opened.set(key, { tree, flow: new DataFlow(run), chosen: tree.rows[0] ?? -1 });
    }
    this.at = this.opened.get(key);
    this.bar.changed();
    if (node > 0) this.goTo(node);
    else this.choose(this.at.chosen);
  }

  /* Which call is chosen, and which blocks are open. */

  name() { return this.at.tree.run.names[this.at.chosen] ?? ""; }

  choose(node) {
    this.at.chosen = node;
    this.details.show();
    this.draw();
    if (node > 0) this.outline.scrollTo(node);
    this.host.went?.();
  }

  goTo(node) {
    if (!(node > 0)) return;
    if (!this.at.tree.isShown(node)) this.at.tree.reveal(node);
    this.choose(node);
  }

  fold(node, isOpen) {
    const { tree, chosen } = this.at;
    if (!tree.isBlock(node)) return;
    tree.setOpen(node, isOpen);
    if (chosen > 0 && !tree.isShown(chosen)) this.choose(node);
    else this.draw();
  }

  foldAll(isOpen) {
    const { tree, chosen } = this.at;
    tree.setAllOpen(isOpen);
    this.choose(chosen > 0 ? tree.rows[tree.rowOf[chosen]] : chosen);
  }

  draw() {
    this.outline.draw();
    this.boxes.show();
  }

  /* Where to go from a call. */

  next(letter, forwards = true) {
    const { outcomes } = this.at.tree.run, from = this.at.chosen;
    const after = () => Math.max(outcomes.indexOf(letter, from + 1), outcomes.indexOf(letter));
    const before = outcomes.slice(0, Math.max(0, from)).lastIndexOf(letter);
    this.goTo(forwards ? after() : before > 0 ? before : outcomes.lastIndexOf(letter));
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
      c: () => this.goTo(tree.run.causes.indexOf("c")),
      i: () => this.goTo(flow.given(chosen, last)[0]?.other), o: () => this.goTo(flow.taken(chosen, last)[0]?.other),
      g: () => this.goToPartner(), b: () => this.goTo(this.twin()), r: () => this.links()[0]?.[1](),
      t: () => this.details.box.focus(), "/": () => this.bar.search.focus(),
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
