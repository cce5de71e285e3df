/* The graph as boxes and edges: modules around their calls, opened one by one. What is chosen is so in the outline too. */

const AFTER_OUTLINE = 80;
const BOXES_HELP = "Arrows follow the values or go to the next call in the module, down also into an open module. Enter opens and closes, Escape goes out to the module. "
  + "Plus, minus and 0 zoom. The outline has the same calls as a tree: press x to go there.";

class BoxesView {
  constructor(view) {
    this.view = view;
    this.layouts = new Map();
    this.drawing = new BoxesDrawing(view);
    this.box = element("div", undefined, "boxes");
    this.box.tabIndex = 0;
    const help = element("p", BOXES_HELP, "unseen");
    help.id = "boxes-help";
    for (const [name, value] of [["role", "application"], ["aria-label", "Boxes and edges"], ["aria-describedby", help.id]]) this.box.setAttribute(name, value);
    // The outline is for those who listen; what is chosen here is said.
    const canvas = svg("svg", { "aria-hidden": "true" });
    canvas.append(this.drawing.stage);
    this.said = element("p", undefined, "said");
    this.said.setAttribute("role", "status");
    this.box.append(canvas);
    this.parts = [this.#head(), this.box, this.said, help];
    this.camera = new BoxesCamera(this.box, this.drawing.stage);
    this.box.addEventListener("click", (event) => this.#click(event.target));
    this.box.addEventListener("dblclick", (event) => this.#doubleClick(event.target));
    this.box.addEventListener("keydown", (event) => this.#press(event));
    new ResizeObserver(() => this.show()).observe(this.box);
  }

  #head() {
    const head = element("div", undefined, "pane-head");
    this.note = element("span", undefined, "note");
    head.append(element("h2", "Boxes and edges"), this.note);
    for (const [text, title, act] of [["+", "larger (+)", () => this.camera.zoom(1.25)], ["−", "smaller (-)", () => this.camera.zoom(0.8)], ["fit", "all of it (0)", () => this.camera.fit()]]) {
      const button = element("button", text, "zoom");
      button.title = title;
      button.setAttribute("aria-label", title);
      button.addEventListener("click", act);
      head.append(button);
    }
    return head;
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

  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.box || !this.layout) return;
    const { chosen, tree } = this.view.at, { layout } = this, item = layout.items.get(chosen);
    const along = (here, there) => this.drawing.edges.find((edge) => edge[here] === chosen && edge[there] > 0)?.[there];
    const near = (step) => layout.sibling(chosen, step), into = item?.isOpen ? tree.children(chosen)[0] : undefined;
    const keys = {
      ...this.view.keys(),
      ArrowDown: () => this.view.goTo(into ?? along("from", "to") ?? near(1)), ArrowUp: () => this.view.goTo(along("to", "from") ?? near(-1)),
      ArrowRight: () => this.view.goTo(near(1)), ArrowLeft: () => this.view.goTo(near(-1)),
      Enter: () => this.#toggle(chosen), " ": () => this.#toggle(chosen), Escape: () => this.view.goTo(tree.run.parents[chosen]),
      "+": () => this.camera.zoom(1.25), "-": () => this.camera.zoom(0.8), 0: () => this.camera.fit(), x: () => this.view.enter("outline"),
    };
    if (chosen <= 0 || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  }
}
