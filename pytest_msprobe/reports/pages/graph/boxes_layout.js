/* What the drawing of boxes shows of a graph: open modules around what is in them, and the edges between what is seen.
   Only that is laid out, so that the size of a graph does not matter. Where a module has many children, those that
   follow each other and are alike are one box, until one of them is chosen; of what is still too much, a page is
   drawn. */

const MOST_CHILDREN = 60, MOST_BOXES = 160, LEAST_STACK = 4;

class BoxesLayout {
  constructor(tree, flow) {
    Object.assign(this, { tree, flow, starts: new Map(), areSpread: new Set(), pages: new Map() });
  }

  /* Decide what is drawn while a call is chosen: what is open in the tree, or, where that is too much to look at, what
     is around the chosen call. An item has its number, greater than 0, the node that it leads to and its parent.
     Return what differs where another drawing is needed. */
  choose(chosen) {
    const around = this.tree.around(chosen);
    for (const block of [0, ...around]) this.#see(block, chosen);
    const isOpen = (node) => this.tree.isOpen(node), isNear = (node) => node === chosen || around.includes(node);
    this.#collect(isOpen);
    this.isPart = this.items.length > MOST_BOXES;
    if (this.isPart) this.#collect((node) => isOpen(node) && isNear(node));
    return this.items.map(({ node, nodes, isOpen }) => `${node} ${nodes.length} ${isOpen}`).join();
  }

  /* See to it that the child of a block that is or contains a node is drawn itself. */
  #see(block, node) {
    const inside = this.tree.children[block], child = inside.findLastIndex((one) => one <= node);
    if (inside.length <= MOST_CHILDREN || child < 0) return;
    let starts = this.#startsIn(block), place = starts.findLastIndex((start) => start <= child);
    if ((starts[place + 1] ?? inside.length) - starts[place] > 1) {
      this.areSpread.add(inside[starts[place]]);
      this.starts.delete(block);
      place += child - starts[place];
    }
    this.pages.set(block, Math.floor(place / MOST_CHILDREN));
  }

  /* The places among a block's children at which a box begins: one that is alone, or those that are alike. */
  #startsIn(block) {
    if (!this.starts.has(block)) {
      const inside = this.tree.children[block], looks = inside.map((node) => this.#looksOf(node)), starts = [];
      for (let from = 0, to; from < inside.length; from = to) {
        to = from + 1;
        while (to < inside.length && looks[to] === looks[from]) to++;
        if (to - from >= LEAST_STACK && !this.areSpread.has(inside[from])) starts.push(from);
        else for (let place = from; place < to; place++) starts.push(place);
      }
      this.starts.set(block, starts);
    }
    return this.starts.get(block);
  }

  /* What a child with all inside of it looks like: the names without numbers, and what came of each. */
  #looksOf(node) {
    const { names, outcomes, causes } = this.tree.run, end = this.tree.last[node] + 1;
    return names.slice(node, end).join().replace(/\d+/g, "") + outcomes.slice(node, end) + causes.slice(node, end);
  }

  /* The boxes of a module as lists of its children. What is before and after the page is one box each. */
  #boxesIn(block) {
    const inside = this.tree.children[block];
    if (inside.length <= MOST_CHILDREN) return inside.map((node) => ({ nodes: [node], node }));
    const starts = this.#startsIn(block), first = (this.pages.get(block) ?? 0) * MOST_CHILDREN;
    const end = first + MOST_CHILDREN;
    const bounds = [...(first ? [0] : []), ...starts.slice(first, end + 1)];
    return bounds.map((from, at) => {
      const nodes = inside.slice(from, bounds[at + 1]), isBefore = first > 0 && at === 0;
      const range = isBefore || from === starts[end] ? [from, inside.length] : null;
      return { nodes, node: isBefore ? nodes.at(-1) : nodes[0], range };
    });
  }

  #collect(isOpen, block = 0, parent = 0) {
    if (!block) Object.assign(this, { items: [], owners: new Int32Array(this.tree.count) });
    for (const box of this.#boxesIn(block)) {
      const number = this.items.length + 1, item = { ...box, number, parent, isOpen: isOpen(box.node) };
      item.isOpen &&= box.nodes.length === 1;
      this.items.push(item);
      this.owners.fill(item.isOpen ? 0 : number, box.nodes[0], this.tree.last[box.nodes.at(-1)] + 1);
      if (item.isOpen) this.#collect(isOpen, item.node, number);
    }
  }

  /* Lay out what is drawn; `sizes` are the width and height of each item that is not open. */
  layOut(sizes) {
    const graph = new dagre.graphlib.Graph({ compound: true });
    graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 34, marginx: 16, marginy: 16 });
    for (const { number, isOpen } of this.items) graph.setNode(String(number), isOpen ? {} : sizes[number - 1]);
    for (const { number, parent } of this.items) if (parent) graph.setParent(String(number), String(parent));
    const edges = this.flow.between(this.owners);
    for (const { from, to } of edges) graph.setEdge(String(from), String(to), {});
    dagre.layout(graph);
    return {
      ...graph.graph(), places: this.items.map(({ number }) => graph.node(String(number))),
      edges: edges.map((edge) => ({ ...edge, points: graph.edge(String(edge.from), String(edge.to)).points })),
    };
  }
}
