/* The boxes and edges of a graph as SVG: what each box says, how large it is, how it looks. */

const BOX_LETTER = 6.7, BOX_HEIGHT = 24, BOX_WITH_BRIEF = 40, MODULE_HEAD = 12, FOLD_WIDTH = 20;

class BoxesDrawing {
  /* `view` is that of the graph; it knows what calls returned. */
  constructor(view) {
    this.view = view;
    this.stage = svg("g", {});
  }

  get tree() { return this.view.at.tree; }

  draw(layout) {
    Object.assign(this, layout.layOut((item) => this.#sizeOf(item)));
    const made = document.createDocumentFragment(), all = [...this.items.values()];
    this.elements = new Map();
    for (const item of all.filter((one) => one.isOpen).sort((a, b) => a.node - b.node)) made.append(this.#moduleBox(item));
    for (const edge of this.edges) made.append(...this.#edge(edge));
    for (const item of all.filter((one) => !one.isOpen)) made.append(this.#callBox(item));
    this.stage.replaceChildren(made);
  }

  /* Let a call and its values stand out. */
  mark(chosen) {
    for (const group of this.stage.querySelectorAll(".chosen")) group.classList.remove("chosen");
    this.elements.get(chosen)?.classList.add("chosen");
    for (const edge of this.stage.querySelectorAll(".edge")) {
      edge.classList.toggle("given", Number(edge.dataset.to) === chosen);
      edge.classList.toggle("taken", Number(edge.dataset.from) === chosen);
    }
  }

  /* The calls that an item shows: a call with all inside of it, or several that follow each other. */
  #nodesOf({ node, others }) { return others?.nodes ?? [node]; }

  #worst(item) {
    const letters = this.#nodesOf(item).map((node) => this.tree.worst[node]);
    return GRAPH_OUTCOMES[letters.reduce((one, other) => (GRAPH_SEVERITY[other] > GRAPH_SEVERITY[one] ? other : one))];
  }

  #textsOf(item) {
    const { tree } = this, { node, others } = item;
    if (others) return [cut(this.#nameOf(others), 40), [others.isAlike ? `${others.nodes.length} alike` : `of ${others.of}`, this.#wrongIn(others.nodes)].filter(Boolean).join(", ")];
    const [name, about] = tree.label(node), cause = { c: "culprit", i: "inherited" }[tree.run.causes[node]];
    const brief = this.#countIn(node, about) || this.view.host.brief(this.view.place, this.view.side, node) || about;
    return [cut(name, 34), cut([cause, brief].filter(Boolean).join(", "), 50)];
  }

  #countIn(node, about) {
    const { wrong, last, run } = this.tree, inside = last[node] - node;
    if (!inside) return "";
    return `${wrong[node] ? `${wrong[node]} wrong of ` : ""}${run.kinds[node] === "c" ? about : plural(inside, "call")}`;
  }

  #nameOf({ nodes, from, isAlike }) {
    if (!isAlike) return `calls ${from + 1} to ${from + nodes.length}`;
    const [[first], [last]] = [nodes[0], nodes.at(-1)].map((node) => this.tree.label(node));
    return first === last ? first : `${first} to ${last}`;
  }

  #wrongIn(nodes) {
    const wrong = nodes.reduce((sum, node) => sum + this.tree.wrong[node] + (this.tree.run.outcomes[node] === "f"), 0);
    return wrong ? `${wrong} wrong` : "";
  }

  #canOpen({ node, others }) { return Boolean(others) || this.tree.isBlock(node); }

  #sizeOf(item) {
    const [name, brief] = item.texts = this.#textsOf(item), words = Math.max(name.length * BOX_LETTER, brief.length * BOX_LETTER * 0.86);
    return { width: 20 + words + (this.#canOpen(item) ? FOLD_WIDTH : 0), height: brief ? BOX_WITH_BRIEF : BOX_HEIGHT };
  }

  #group(item, className) {
    const { x, y, width, height, node } = item;
    const title = item.others ? `${item.texts.join(", ")}: show them` : this.tree.run.names[node];
    const rect = svg("rect", { x: x - width / 2, y: y - height / 2, width, height, rx: 6 });
    const group = svg("g", { class: className, "data-node": node }, [svg("title", {}, title), rect]);
    this.elements.set(item.node, group);
    return group;
  }

  /* What opens or closes a box by one click, large enough for a finger. */
  #fold(x, y, isOpen) {
    const room = svg("rect", { x: x - 12, y: y - 12, width: 24, height: 24, class: "room" });
    const arrow = svg("text", { x, y: y + 4, "text-anchor": "middle" }, isOpen ? "▾" : "▸");
    return svg("g", { class: "fold-box" }, [room, arrow]);
  }

  #moduleBox(item) {
    const [name, about] = this.tree.label(item.node);
    // Its name is above what is in it.
    Object.assign(item, { y: item.y - MODULE_HEAD / 2, height: item.height + MODULE_HEAD });
    const group = this.#group(item, `module ${this.#worst(item)}`), left = item.x - item.width / 2, top = item.y - item.height / 2;
    const room = Math.max(8, Math.floor(item.width / BOX_LETTER) - 5);
    group.append(svg("text", { x: left + 22, y: top + 16 }, cut(`${name} ${about}`.trim(), room)), this.#fold(left + 12, top + 12, true));
    return group;
  }

  #callBox(item) {
    const { tree } = this, [name, brief] = item.texts, canOpen = this.#canOpen(item), isCulprit = tree.run.causes[item.node] === "c";
    const look = canOpen ? this.#worst(item) : tree.outcome(item.node), kind = item.others ? "others" : canOpen ? "closed" : "";
    const group = this.#group(item, `node ${look} ${kind} ${isCulprit ? "culprit" : ""}`);
    const middle = { x: item.x - (canOpen ? FOLD_WIDTH / 2 : 0), "text-anchor": "middle" };
    group.append(svg("text", { ...middle, y: item.y + (brief ? -3 : 4) }, name));
    if (brief) group.append(svg("text", { ...middle, y: item.y + 13, class: "brief" }, brief));
    if (canOpen) group.append(this.#fold(item.x + item.width / 2 - 12, item.y, false));
    return group;
  }

  #edge({ from, to, count, isCertain, points }) {
    const outcome = this.#worst(this.items.get(from)), path = pathThrough(points), end = points.at(-1), before = points.at(-2);
    const angle = (180 * Math.atan2(end.y - before.y, end.x - before.x)) / Math.PI;
    const facts = { class: `edge ${outcome} ${isCertain ? "" : "uncertain"}`, "data-from": from, "data-to": to };
    const parts = [svg("path", { ...facts, d: path }), svg("path", { ...facts, d: "M-6 -3.5L0 0L-6 3.5", transform: `translate(${end.x} ${end.y}) rotate(${angle})` })];
    if (count > 1) parts.push(svg("text", { class: "count", x: points[points.length >> 1].x + 4, y: points[points.length >> 1].y }, count));
    return parts;
  }
}

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function pathThrough(points) {
  const [start, ...others] = points.map(({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`);
  if (points.length < 3) return `M${start}L${others.join("L")}`;
  // Each inner point bends the line; it passes through the middles between them.
  let path = `M${start}`;
  for (let at = 1; at + 1 < points.length; at++) {
    const { x, y } = points[at], next = points[at + 1], isLast = at + 2 === points.length;
    path += `Q${x.toFixed(1)} ${y.toFixed(1)} ${(isLast ? next.x : (x + next.x) / 2).toFixed(1)} ${(isLast ? next.y : (y + next.y) / 2).toFixed(1)}`;
  }
  return path;
}
