/* What the drawing of boxes shows of a graph: open modules around what is in them, and the edges between what is seen.
   Only that is laid out, so that the size of a graph does not matter. */

const MOST_CHILDREN = 60, MOST_BOXES = 240;

class BoxesLayout {
  constructor(tree, edges) {
    Object.assign(this, { tree, edges, open: new Set([0]), first: new Map() });
    this.stacks = new CallStacks(tree, MOST_CHILDREN);
    this.owner = new Int32Array(tree.count);
  }

  /* Open what is around a node, and what has no alternative; where that is too much to look at, that alone. */
  reveal(node) {
    const around = [0, ...this.tree.around(node)];
    for (const block of around) this.#openWith(block);
    for (const block of around) this.#window(block, node);
    if (this.#count() > MOST_BOXES) this.open = new Set(around);
  }

  toggle(block) {
    if (!this.open.delete(block)) this.#openWith(block);
  }

  /* Whether a node is seen itself, not as a part of a closed module. */
  isShown(node) {
    return this.items?.has(node) ?? false;
  }

  /* The next child of the same module, or the one before. */
  sibling(node, step) {
    const inside = this.tree.children(this.tree.run.parents[node]);
    return inside[inside.indexOf(node) + step];
  }

  #openWith(block) {
    this.open.add(block);
    const inside = this.tree.children(block);
    if (inside.length === 1 && this.tree.isBlock(inside[0])) this.#openWith(inside[0]);
  }

  /* See to it that the child of a block that is or contains a node is drawn itself. */
  #window(block, node) {
    const child = this.tree.children(block).findIndex((one) => node >= one && node <= this.tree.last[one]);
    if (child < 0) return;
    if (this.stacks.isIn(block, child)) this.stacks.spread(block);
    const place = this.stacks.of(block).findLastIndex((start) => start <= child), first = this.first.get(block) ?? 0;
    if (place < first || place >= first + MOST_CHILDREN) this.first.set(block, Math.max(0, place - (MOST_CHILDREN >> 1)));
  }

  #count(block = 0) {
    const inside = this.tree.children(block);
    return this.#seen(block).reduce((sum, { from }) => sum + 1 + (this.open.has(inside[from]) ? this.#count(inside[from]) : 0), 0);
  }

  /* The boxes of a module: `from` and `to` say which children each is. What is before and after them is one box each. */
  #seen(block) {
    const starts = this.stacks.of(block), first = this.first.get(block) ?? 0, end = first + MOST_CHILDREN;
    const box = (place) => ({ from: starts[place], to: starts[place + 1] ?? this.tree.children(block).length });
    const found = starts.slice(first, end).map((_, at) => box(first + at));
    if (first > 0) found.unshift({ from: 0, to: starts[first], show: () => this.first.set(block, Math.max(0, first - MOST_CHILDREN)) });
    if (end < starts.length) found.push({ from: starts[end], to: this.tree.children(block).length, show: () => this.first.set(block, end) });
    return found;
  }

  /* Lay out all that is open. `sizeOf` gives the width and height of a node that is drawn as one box. */
  layOut(sizeOf) {
    this.items = new Map();
    this.notes = [];
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
    const inside = this.tree.children(block), boxes = this.#seen(block);
    for (const { from, to, show } of boxes) {
      if (show || to - from > 1) this.#gather(block, inside, from, to, show);
      else this.#draw(block, inside[from]);
    }
    if (boxes.some(({ show }) => show)) this.notes.push(`${boxes.filter(({ show }) => !show).length} of ${plural(inside.length, "call")} are drawn`);
    else if (boxes.length < inside.length) this.notes.push("calls that are alike are one box");
  }

  #draw(block, node) {
    const isOpen = this.open.has(node) && this.tree.isBlock(node);
    this.items.set(node, { node, isOpen, parent: block });
    this.owner.fill(isOpen ? 0 : node, node, this.tree.last[node] + 1);
    if (isOpen) this.#collect(node);
  }

  // Children that are one box: its number is less than that of any node.
  #gather(block, inside, from, to, show) {
    const id = -inside[from], nodes = inside.slice(from, to), isAlike = !show;
    const spread = () => { this.stacks.spread(block); this.first.set(block, from); };
    this.items.set(id, { node: id, parent: block, others: { nodes, from, of: inside.length, isAlike, show: show ?? spread } });
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
