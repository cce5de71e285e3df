/* The calls of a graph as a tree, of which the rows in sight are in the document. */

const GRAPH_ROW = 28;

class GraphOutline {
  constructor(view) {
    this.view = view;
    this.canvas = element("div", [], "canvas", { role: "presentation" });
    const facts = { tabindex: 0, role: "tree", "aria-label": "Modules and calls" };
    this.box = element("div", this.canvas, "scroller", facts);
    onKeys(this.box, () => this.#keys());
    onCalls(this.box, view);
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()));
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  bring(node) { bringInSight(this.box, 0, (this.view.at.tree.rowOf[node] + 0.5) * GRAPH_ROW); }

  draw() {
    const { tree, chosen } = this.view.at, { box } = this;
    if (!box.clientHeight) return;
    this.canvas.style.height = `${tree.rows.length * GRAPH_ROW + 8}px`;
    const first = Math.max(0, Math.floor(box.scrollTop / GRAPH_ROW) - 6);
    const shown = tree.rows.slice(first, first + Math.ceil(box.clientHeight / GRAPH_ROW) + 12);
    this.canvas.replaceChildren(...shown.map((node, at) => this.#row(node, (first + at) * GRAPH_ROW + 4)));
    box.setAttribute("aria-activedescendant", `call-${chosen}`);
  }

  #row(node, top) {
    const { tree, chosen } = this.view.at, depth = tree.depth[node], isChosen = node === chosen;
    return filled(callElement(this.view, node, tree.isOpen(node), isChosen ? "chosen" : ""), [], {
      id: `call-${node}`, role: "treeitem", "aria-level": depth, "aria-selected": isChosen,
      ...(tree.isBlock(node) ? { "aria-expanded": tree.isOpen(node) } : {}),
      style: `top: ${top}px; --depth: ${depth - 1}`,
    });
  }

  /* The keys of any tree. */
  #keys() {
    const { view } = this, { tree, chosen } = view.at, row = chosen > 0 ? tree.rowOf[chosen] : 0, node = tree.rows[row];
    if (!tree.rows.length) return {};
    const parent = tree.run.parents[node], page = Math.max(1, Math.floor(this.box.clientHeight / GRAPH_ROW) - 1);
    const to = (place) => view.choose(tree.rows[Math.max(0, Math.min(tree.rows.length - 1, place))]);
    return {
      ArrowDown: () => to(row + 1), ArrowUp: () => to(row - 1), Home: () => to(0), End: () => to(tree.rows.length - 1),
      PageDown: () => to(row + page), PageUp: () => to(row - page),
      ArrowRight: () => (tree.isOpen(node) ? to(row + 1) : view.fold(node, true)),
      ArrowLeft: () => (tree.isOpen(node) ? view.fold(node, false) : parent > 0 && view.choose(parent)),
      ...view.keys(), x: () => view.enter("boxes"),
    };
  }
}

/* Scroll a box so that a point is in sight, in the middle where it was not. */
function bringInSight(box, x, y) {
  const isIn = (at, start, size) => at >= start && at <= start + size;
  const isSeen = isIn(x, box.scrollLeft, box.clientWidth) && isIn(y, box.scrollTop, box.clientHeight);
  if (!isSeen) box.scrollTo(x - box.clientWidth / 2, y - box.clientHeight / 2);
}
