/* The graph as boxes and edges: modules around their calls, opened one by one. What is chosen is so in the outline too. */

const AFTER_OUTLINE = 80;
const BOXES_HELP = "Arrows follow the values or go to the next call in the module, down also into an open module. Enter opens and closes, Escape goes out to the module. "
  + "Plus, minus and 0 zoom. The outline has the same calls as a tree: press x to go there.";

class BoxesView {
  constructor(view) {
    this.view = view;
    this.layouts = new Map();
    this.drawing = new BoxesDrawing(view);
    // The outline is for those who listen; what is chosen here is said.
    this.box = element("div", svg("svg", { "aria-hidden": "true" }, this.drawing.stage), "boxes", {
      tabindex: 0, role: "application", "aria-label": "Boxes and edges", "aria-describedby": "boxes-help",
    });
    const help = element("p", BOXES_HELP, "unseen", { id: "boxes-help" });
    this.said = element("p", [], "said", { role: "status" });
    this.parts = [this.#head(), this.box, this.said, help];
    this.camera = new BoxesCamera(this.box, this.drawing.stage);
    this.box.addEventListener("click", (event) => this.#click(event.target));
    this.box.addEventListener("dblclick", (event) => this.#doubleClick(event.target));
    onKeys(this.box, (event) => this.#keys(event));
    new ResizeObserver(() => this.show()).observe(this.box);
  }

  #head() {
    const zooms = [
      ["+", "larger (+)", () => this.camera.zoom(1.25)], ["−", "smaller (-)", () => this.camera.zoom(0.8)],
      ["fit", "all of it (0)", () => this.camera.fit()],
    ].map(([text, title, act]) => filled(button(text, act, "zoom"), [], { title, "aria-label": title }));
    this.note = element("span", [], "note");
    return element("div", [element("h2", "Boxes and edges"), this.note, ...zooms], "pane-head");
  }

  /* Show what is chosen. After the outline, so that a page opens as fast as without. */
  show() {
    if (this.waiting) return;
    this.waiting = setTimeout(() => { this.waiting = 0; this.#show(); }, this.layout ? 0 : AFTER_OUTLINE);
  }

  #show() {
    if (!this.box.clientHeight || !this.view.at) return;
    const { tree, flow, chosen } = this.view.at;
    if (!this.layouts.has(tree)) this.layouts.set(tree, new BoxesLayout(tree, flow.edges));
    const layout = this.layouts.get(tree), isOther = this.layout !== layout;
    this.layout = layout;
    if (chosen > 0 && !layout.isShown(chosen)) {
      layout.reveal(chosen);
      this.#draw();
    } else if (isOther) this.#draw();
    this.#mark();
    // What was clicked is in sight; moved, it would be missed by a second click.
    if (!this.isClicked) this.camera.bring(layout.items.get(chosen));
    this.isClicked = false;
  }

  #draw() {
    this.drawing.draw(this.layout);
    this.camera.room(this.drawing.width, this.drawing.height);
    const { edges } = this.drawing;
    this.note.textContent = this.layout.notes[0] ?? (edges.length ? "" : "no values were followed between these");
  }

  #mark() {
    const { chosen, tree } = this.view.at, outcome = tree.outcome(chosen);
    this.drawing.mark(chosen);
    this.said.textContent = chosen > 0 ? `${tree.run.names[chosen]}${outcome ? `, ${outcome}` : ""}` : "";
  }

  /* What is clicked and pressed. */

  #click(target) {
    const item = this.#itemAt(target);
    if (!item || this.camera.hasMoved) return;
    if (item.others) return this.#change(item.others.show);
    this.isClicked = true;
    this.view.goTo(item.node);
    if (target.closest(".fold-box")) this.#toggle(item.node);
  }

  #doubleClick(target) {
    const item = this.#itemAt(target);
    if (item && !item.others && !target.closest(".fold-box")) this.#toggle(item.node);
  }

  #itemAt(target) {
    const group = target.closest?.("[data-node]");
    return group && this.layout.items.get(Number(group.dataset.node));
  }

  #toggle(node) {
    if (this.view.at.tree.isBlock(node)) this.#change(() => this.layout.toggle(node));
  }

  #change(act) {
    act();
    this.#draw();
    this.#mark();
    this.camera.bring(this.layout.items.get(this.view.at.chosen));
  }

  #keys(event) {
    const { chosen, tree } = this.view.at, { layout } = this;
    if (event.target !== this.box || !layout || chosen <= 0) return {};
    const item = layout.items.get(chosen), into = item?.isOpen ? tree.children(chosen)[0] : undefined;
    const along = (here, there) => this.drawing.edges.find((edge) => edge[here] === chosen && edge[there] > 0)?.[there];
    const near = (step) => layout.sibling(chosen, step), go = (node) => this.view.goTo(node);
    return {
      ...this.view.keys(), x: () => this.view.enter("outline"), Escape: () => go(tree.run.parents[chosen]),
      ArrowDown: () => go(into ?? along("from", "to") ?? near(1)), ArrowUp: () => go(along("to", "from") ?? near(-1)),
      ArrowRight: () => go(near(1)), ArrowLeft: () => go(near(-1)),
      Enter: () => this.#toggle(chosen), " ": () => this.#toggle(chosen),
      "+": () => this.camera.zoom(1.25), "-": () => this.camera.zoom(0.8), 0: () => this.camera.fit(),
    };
  }
}
