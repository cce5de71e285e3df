/* Which views of a graph are shown: the outline, the boxes, or both where there is room. */

const GRAPH_VIEWS = [["outline", "the outline alone"], ["both", "outline and boxes"], ["boxes", "boxes and edges alone"]];

class ShownViews {
  constructor(view) {
    this.view = view;
    this.wanted = remembered("graph.shows", "both");
    this.buttons = new Map(GRAPH_VIEWS.map(([name, title]) => [name, this.#button(name, title)]));
    view.bar.shown.setAttribute("role", "group");
    view.bar.shown.setAttribute("aria-label", "Shown");
    view.bar.shown.append(...this.buttons.values());
    window.addEventListener("resize", () => this.#apply());
    this.#apply();
  }

  #button(name, title) {
    const button = element("button", name);
    button.dataset.view = name;
    button.title = title;
    button.addEventListener("click", () => this.#want(name));
    return button;
  }

  /* What is shown now. */
  get name() { return this.wanted === "both" && isNarrow() ? "outline" : this.wanted; }

  /* Show a view, with what is shown already where there is room. */
  show(name) {
    if (panes.get("graph-outline").isFolded && name === "outline") openPane("graph-outline");
    if (this.name !== name && this.name !== "both") this.#want(isNarrow() ? name : "both");
  }

  #want(name) {
    this.wanted = name;
    remember("graph.shows", name);
    if (name === "outline") openPane("graph-outline");
    this.#apply();
  }

  #apply() {
    this.view.box.dataset.shows = this.name;
    for (const [name, button] of this.buttons) button.setAttribute("aria-pressed", String(name === this.name));
  }
}
