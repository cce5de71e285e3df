/* What the drawing of boxes shows of a graph: open modules around what is in them, and the edges between what is seen.
   Only that is laid out, so that the size of a graph does not matter. */

const MOST_CHILDREN = 60, MOST_BOXES = 240;

class BoxesLayout {
  constructor(tree, edges) {
    Object.assign(this, { tree, edges, open: new Set([0]), first: new Map() });
    this.owner = new Int32Array(tree.count);
  }

  /* Open what is around a node, and what has no alternative; where that is too much to look at, that alone. */
  reveal(node) {
    const around = [0, ...this.tree.around(node)];
    for (const block of around) this.#openWith(block);
    for (const block of around) this.#window(block, this.#childOn(block, node));
    if (this.#count() > MOST_BOXES) this.open = new Set(around);
  }

  toggle(block) {
    if (!this.open.delete(block)) this.#openWith(block);
  }

  /* Whether a node is seen itself, not as a part of a closed module. */
  isShown(node) {
    return this.items?.has(node) ?? false;
  }

  /* Show other children of a module of many. */
  turn(block, first) {
    this.first.set(block, first);
  }

  #openWith(block) {
    this.open.add(block);
    const inside = this.#children(block);
    if (inside.length === 1 && this.tree.isBlock(inside[0])) this.#openWith(inside[0]);
  }

  #children(block) {
    this.inside ??= new Map();
    if (!this.inside.has(block)) {
      const found = [];
      for (let node = block + 1; node <= this.tree.last[block]; node = this.tree.last[node] + 1) found.push(node);
      this.inside.set(block, found);
    }
    return this.inside.get(block);
  }

  #childOn(block, node) {
    return this.#children(block).find((child) => node >= child && node <= this.tree.last[child]);
  }

  #window(block, child) {
    const all = this.#children(block), place = all.indexOf(child), first = this.first.get(block) ?? 0;
    if (place < first || place >= first + MOST_CHILDREN) this.first.set(block, Math.max(0, place - (MOST_CHILDREN >> 1)));
  }

  #count(block = 0) {
    return this.#shown(block).reduce((sum, node) => sum + 1 + (this.open.has(node) ? this.#count(node) : 0), 0);
  }

  #shown(block) {
    const first = this.first.get(block) ?? 0;
    return this.#children(block).slice(first, first + MOST_CHILDREN);
  }

  /* Lay out all that is open. `sizeOf` gives the width and height of a node that is drawn as one box. */
  layOut(sizeOf) {
    this.items = new Map();
    this.owner.fill(0);
    this.#collect(0);
    const graph = new dagre.graphlib.Graph({ compound: true });
    graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 34, marginx: 16, marginy: 16 });
    for (const [id, item] of this.items) {
      graph.setNode(String(id), item.isOpen ? {} : sizeOf(item));
      if (this.items.has(item.parent)) graph.setParent(String(id), String(item.parent));
    }
    const edges = this.#seenEdges();
    for (const edge of edges) graph.setEdge(String(edge.from), String(edge.to), {});
    dagre.layout(graph);
    for (const [id, item] of this.items) Object.assign(item, graph.node(String(id)));
    for (const edge of edges) edge.points = graph.edge(String(edge.from), String(edge.to)).points;
    return { width: graph.graph().width, height: graph.graph().height, items: this.items, edges };
  }

  #collect(block) {
    const all = this.#children(block), first = this.first.get(block) ?? 0, end = first + MOST_CHILDREN;
    if (first > 0) this.#collectOthers(block, all.slice(0, first), Math.max(0, first - MOST_CHILDREN), "before");
    for (const node of all.slice(first, end)) {
      const isOpen = this.open.has(node) && this.tree.isBlock(node);
      this.items.set(node, { node, isOpen, parent: block });
      this.owner.fill(isOpen ? 0 : node, node, this.tree.last[node] + 1);
      if (isOpen) this.#collect(node);
    }
    if (end < all.length) this.#collectOthers(block, all.slice(end), end, "after");
  }

  // Children that are not drawn are one box; its number is less than that of any node.
  #collectOthers(block, nodes, first, where) {
    const id = -2 * block - (where === "before" ? 1 : 2);
    this.items.set(id, { node: id, parent: block, turns: { block, first }, others: nodes.length, where });
    this.owner.fill(id, nodes[0], this.tree.last[nodes.at(-1)] + 1);
  }

  #seenEdges() {
    const seen = new Map();
    for (let at = 0; at < this.edges.length; at += 5) {
      const from = this.owner[this.edges[at]], to = this.owner[this.edges[at + 2]];
      if (from === to || !from || !to) continue;
      const key = `${from} ${to}`, isCertain = this.edges[at + 4] < 3, known = seen.get(key);
      if (!known) seen.set(key, { from, to, count: 1, isCertain });
      else {
        known.count++;
        known.isCertain ||= isCertain;
      }
    }
    return [...seen.values()];
  }
}
