/* Which views of a graph are shown: the outline, the boxes, or both where there is room. */

const GRAPH_VIEWS = [["outline", "the outline alone"], ["both", "outline and boxes"], ["boxes", "boxes and edges alone"]];

// Outline and details leave the boxes no room on a narrower screen.
const hasRoomForBoth = () => window.innerWidth > 1100;

class ShownViews {
  constructor(view) {
    this.view = view;
    this.wanted = remembered("graph.shows", "both");
    this.buttons = new Map(GRAPH_VIEWS.map(([name, title]) => [name, button(name, () => this.#want(name))]));
    for (const [name, title] of GRAPH_VIEWS) filled(this.buttons.get(name), [], { title, "data-view": name });
    view.bar.shown.append(...this.buttons.values());
    window.addEventListener("resize", () => this.#apply());
    this.#apply();
  }

  /* What is shown now. */
  get name() { return this.wanted === "both" && !hasRoomForBoth() ? "outline" : this.wanted; }

  /* Show a view, with what is shown already where there is room. */
  show(name) {
    if (panes.get("graph-outline").isFolded && name === "outline") openPane("graph-outline");
    if (this.name !== name && this.name !== "both") this.#want(hasRoomForBoth() ? "both" : name);
  }

  #want(name) {
    this.wanted = name;
    remember("graph.shows", name);
    if (name === "outline") openPane("graph-outline");
    this.#apply();
  }

  #apply() {
    this.view.box.dataset.shows = this.name;
    for (const [name, one] of this.buttons) one.setAttribute("aria-pressed", String(name === this.name));
  }
}
