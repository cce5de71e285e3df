/* What is in sight of a graph: blocks around blocks, and arcs from each output to where it is an input. */

const GRAPH_ROW = 28;

class GraphDrawing {
  constructor(canvas) {
    this.canvas = canvas;
  }

  /* Draw the rows from first up to last; `chosen` and its values stand out. `briefOf` says what a call returned. */
  draw(tree, flow, chosen, first, last, briefOf) {
    const width = this.canvas.clientWidth;
    this.step = width < 640 ? 7 : 14;
    this.gutter = Math.max(44, Math.min(120, width * 0.14));
    this.width = width;
    const made = document.createDocumentFragment();
    for (const block of this.#openBlocks(tree, first, last)) made.append(this.#box(tree, block));
    for (let row = first; row < last; row++) made.append(this.#row(tree, row, chosen, briefOf));
    made.append(this.#arcs(tree, flow, chosen, first, last));
    this.canvas.replaceChildren(made);
  }

  resize(rows) {
    this.canvas.style.height = `${rows * GRAPH_ROW + 8}px`;
  }

  #openBlocks(tree, first, last) {
    const blocks = new Set();
    for (let row = first; row < last; row++) {
      const node = tree.rows[row];
      if (tree.open[node] && tree.isBlock(node)) blocks.add(node);
      if (row === first) for (const block of tree.around(node)) blocks.add(block);
    }
    return [...blocks].sort((a, b) => a - b);
  }

  #left(depth) { return 4 + (depth - 1) * this.step; }
  #right(depth) { return this.gutter + (depth - 1) * 4; }

  #box(tree, block) {
    const top = tree.rowOf[block], end = tree.rowOf[tree.last[block]], depth = tree.depth[block];
    const box = element("div", [], `box ${tree.outcome(block)}`, { "aria-hidden": true });
    Object.assign(box.style, {
      top: `${top * GRAPH_ROW + 2}px`, height: `${(end - top + 1) * GRAPH_ROW}px`,
      left: `${this.#left(depth)}px`, right: `${this.#right(depth)}px`,
    });
    return box;
  }

  #row(tree, row, chosen, briefOf) {
    const node = tree.rows[row], depth = tree.depth[node], isBlock = tree.isBlock(node), isOpen = isBlock && tree.open[node];
    const outcome = tree.outcome(node), isChosen = node === chosen, [name, about] = tree.label(node);
    const brief = briefOf(node);
    const cause = { c: "culprit", i: "inherited" }[tree.run.causes[node]];
    const hasWarnings = isBlock && !isOpen && tree.worst[node] === "w" && outcome !== "warn";
    const wrong = tree.wrong[node], warnings = ["inside-warn", "!", "warnings inside"];
    const [look, short, words] = wrong ? ["inside", wrong, "wrong inside"] : warnings;
    const inside = element("span", [short, element("span", ` ${words}`, "words")], `badge ${look}`);
    const parts = [
      element("span", isBlock ? (isOpen ? "▾" : "▸") : "", "fold"), element("span", name, "name"),
      element("span", about, "about"),
      ...(brief && !isOpen ? [element("span", brief, "brief")] : []),
      ...(cause ? [element("span", cause, `badge ${cause}`)] : []),
      ...(tree.wrong[node] || hasWarnings ? [inside] : []),
    ];
    return element("div", parts, `call ${outcome} ${isOpen ? "open" : ""} ${isChosen ? "chosen" : ""}`, {
      id: `call-${node}`, "data-node": node, role: "treeitem", "aria-level": depth, "aria-selected": isChosen,
      ...(isBlock ? { "aria-expanded": Boolean(isOpen) } : {}), title: tree.run.names[node],
      style: `top: ${row * GRAPH_ROW + 4}px; left: ${this.#left(depth)}px; right: ${this.#right(depth)}px`,
    });
  }

  #arcs(tree, flow, chosen, first, last) {
    const drawing = svg("svg", { "aria-hidden": "true" }), top = first * GRAPH_ROW;
    Object.assign(drawing.style, { top: `${top}px`, height: `${(last - first) * GRAPH_ROW}px`, width: `${this.width}px` });
    const lines = new Map();
    const [chosenFirst, chosenLast] = chosen > 0 ? [tree.rowOf[chosen], tree.rowOf[tree.last[chosen]]] : [-1, -1];
    const isChosen = (row) => row >= chosenFirst && row <= chosenLast;
    for (const edge of flow.between(first, last)) {
      const crosses = isChosen(edge.from) !== isChosen(edge.to);
      const kind = crosses ? (isChosen(edge.to) ? "given" : "taken") : { f: "wrong", w: "warned" }[this.#shown(tree, tree.rows[edge.from])] ?? "plain";
      const key = edge.isCertain ? kind : `${kind} uncertain`;
      const [line, head] = this.#arc(tree, edge, top);
      const path = lines.get(key) ?? ["", ""];
      lines.set(key, [path[0] + line, path[1] + head]);
    }
    // What belongs to the chosen call is drawn last, above the others.
    const order = ["plain", "warned", "wrong", "given", "taken"];
    for (const [key, [line, head]] of [...lines].sort(([a], [b]) => order.indexOf(a.split(" ")[0]) - order.indexOf(b.split(" ")[0]))) {
      for (const [data, part] of [[line, "line"], [head, "head"]]) {
        drawing.append(svg("path", { d: data, class: `${part} ${key}` }));
      }
    }
    return drawing;
  }

  /* The outcome of a row: for a closed block the worst inside it. */
  #shown(tree, node) {
    return tree.open[node] ? tree.run.outcomes[node] : tree.worst[node];
  }

  #arc(tree, { from, to }, top) {
    const edgeOf = (row) => this.width - this.#right(tree.depth[tree.rows[row]]);
    const y0 = from * GRAPH_ROW + 18 - top, y1 = to * GRAPH_ROW + 12 - top, x0 = edgeOf(from), x1 = edgeOf(to);
    const reach = Math.max(x0, x1) + Math.min(this.gutter * 1.25, 8 + 14 * Math.log2(1 + Math.abs(to - from)));
    return [`M${x0} ${y0}C${reach} ${y0} ${reach} ${y1} ${x1 + 5} ${y1}`, `M${x1} ${y1}l7 -3.5v7z`];
  }
}
