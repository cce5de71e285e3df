/* The graph as boxes and edges: modules around their calls, opened one by one. What is chosen is so in the outline too. */

const AFTER_OUTLINE = 80;
const BOX_LETTER = 6.7, BOX_HEIGHT = 24, BOX_WITH_BRIEF = 40, MODULE_HEAD = 12, LEAST_ZOOM = 0.05, MOST_ZOOM = 3;

class BoxesView {
  constructor(view) {
    this.view = view;
    this.layouts = new Map();
    this.box = element("div", undefined, "boxes");
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "group");
    this.box.setAttribute("aria-label", "Boxes and edges: arrows follow the values, Enter opens and closes, Escape goes out, + - 0 zoom; the outline has the same calls");
    this.said = element("p", undefined, "said");
    this.said.setAttribute("role", "status");
    this.canvas = svg("svg", {});
    this.stage = svg("g", {});
    this.canvas.append(this.stage);
    this.box.append(this.canvas, this.#zoomButtons(), this.said);
    this.camera = new BoxesCamera(this.box, this.stage);
    this.box.addEventListener("click", (event) => this.#click(event.target));
    this.box.addEventListener("dblclick", (event) => this.#toggleAt(event.target));
    this.box.addEventListener("keydown", (event) => this.#press(event));
    new ResizeObserver(() => this.show()).observe(this.box);
  }

  #zoomButtons() {
    const buttons = element("div", undefined, "zoom");
    for (const [text, title, act] of [["+", "larger", () => this.camera.zoom(1.25)], ["−", "smaller", () => this.camera.zoom(0.8)], ["fit", "all of it", () => this.camera.fit(this.drawn)]]) {
      const button = element("button", text);
      button.title = title;
      button.addEventListener("click", act);
      buttons.append(button);
    }
    return buttons;
  }

  /* Show what is chosen. After the outline, so that a page opens as fast as without. */
  show() {
    if (this.waiting) return;
    this.waiting = setTimeout(() => { this.waiting = 0; this.#show(); }, this.drawn ? 0 : AFTER_OUTLINE);
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
    } else if (isOther || !this.drawn) this.#draw();
    this.#mark(chosen);
    this.camera.bring(layout.items.get(chosen));
  }

  #draw() {
    const { width, height, items, edges } = this.drawn = this.layout.layOut((item) => this.#sizeOf(item));
    const made = document.createDocumentFragment();
    this.elements = new Map();
    const all = [...items.values()];
    for (const item of all.filter((one) => one.isOpen).sort((a, b) => a.node - b.node)) made.append(this.#moduleBox(item));
    for (const edge of edges) made.append(...this.#edge(edge));
    for (const item of all.filter((one) => !one.isOpen)) made.append(this.#callBox(item));
    this.stage.replaceChildren(made);
    this.camera.room(width, height);
  }

  #textsOf(item) {
    if (item.others) return [`${plural(item.others, "more call", "more calls")} ${item.where}`, ""];
    const [name, about] = this.view.at.tree.label(item.node);
    const inside = this.view.at.tree.last[item.node] - item.node;
    const brief = inside ? plural(inside, "call") : this.view.host.brief(this.view.place, this.view.side, item.node);
    return [cut(inside ? `${name} ▸` : name, 34), cut(brief || about, 40)];
  }

  #sizeOf(item) {
    const [name, brief] = item.texts = this.#textsOf(item);
    return { width: 20 + Math.max(name.length * BOX_LETTER, brief.length * BOX_LETTER * 0.86), height: brief ? BOX_WITH_BRIEF : BOX_HEIGHT };
  }

  #group(item, className) {
    const { tree } = this.view.at, group = svg("g", { class: className });
    group.dataset.node = item.node;
    group.append(svg("title", {}, item.others ? item.texts[0] : tree.run.names[item.node]));
    group.append(svg("rect", { x: item.x - item.width / 2, y: item.y - item.height / 2, width: item.width, height: item.height, rx: 6 }));
    this.elements.set(item.node, group);
    return group;
  }

  #moduleBox(item) {
    const { tree } = this.view.at, [name, about] = tree.label(item.node);
    // Its name is above what is in it.
    Object.assign(item, { y: item.y - MODULE_HEAD / 2, height: item.height + MODULE_HEAD });
    const group = this.#group(item, `module ${this.#worst(item.node)}`);
    group.append(svg("text", { x: item.x - item.width / 2 + 8, y: item.y - item.height / 2 + 15 }, cut(`${name} ▾ ${about}`, Math.max(8, Math.floor(item.width / BOX_LETTER) - 3))));
    return group;
  }

  #callBox(item) {
    const { tree } = this.view.at, [name, brief] = item.texts;
    const isClosed = item.others || tree.isBlock(item.node), isCulprit = tree.run.causes[item.node] === "c";
    const look = item.others ? "others" : isClosed ? this.#worst(item.node) : tree.outcome(item.node);
    const group = this.#group(item, `node ${look} ${isClosed ? "closed" : ""} ${isCulprit && !isClosed ? "culprit" : ""}`);
    const middle = { x: item.x, "text-anchor": "middle" };
    group.append(svg("text", { ...middle, y: item.y + (brief ? -3 : 4) }, name));
    if (brief) group.append(svg("text", { ...middle, y: item.y + 13, class: "brief" }, brief));
    return group;
  }

  #worst(node) {
    return GRAPH_OUTCOMES[this.view.at.tree.worst[node]];
  }

  #edge({ from, to, count, isCertain, points }) {
    const outcome = from > 0 ? this.#worst(from) : "", path = pathThrough(points), end = points.at(-1), before = points.at(-2);
    const angle = (180 * Math.atan2(end.y - before.y, end.x - before.x)) / Math.PI;
    const facts = { class: `edge ${outcome} ${isCertain ? "" : "uncertain"}`, "data-from": from, "data-to": to };
    const parts = [svg("path", { ...facts, d: path }), svg("path", { ...facts, d: "M-6 -3.5L0 0L-6 3.5", transform: `translate(${end.x} ${end.y}) rotate(${angle})` })];
    if (count > 1) parts.push(svg("text", { class: "count", x: points[points.length >> 1].x + 4, y: points[points.length >> 1].y }, count));
    return parts;
  }

  #mark(chosen) {
    for (const group of this.stage.querySelectorAll(".chosen")) group.classList.remove("chosen");
    this.elements.get(chosen)?.classList.add("chosen");
    for (const edge of this.stage.querySelectorAll(".edge")) {
      edge.classList.toggle("given", Number(edge.dataset.to) === chosen);
      edge.classList.toggle("taken", Number(edge.dataset.from) === chosen);
    }
    const { tree } = this.view.at, outside = this.drawn.edges.length ? "" : "; no values were followed between these calls";
    this.said.textContent = chosen > 0 ? `${tree.run.names[chosen]}${tree.outcome(chosen) ? `, ${tree.outcome(chosen)}` : ""}${outside}` : "";
  }

  /* What is clicked and pressed. */

  #itemAt(target) {
    const group = target.closest?.("[data-node]");
    return group && this.layout.items.get(Number(group.dataset.node));
  }

  #click(target) {
    const item = this.#itemAt(target);
    if (!item || this.camera.hasMoved) return;
    if (item.turns) this.#change(() => this.layout.turn(item.turns.block, item.turns.first));
    else this.view.goTo(item.node);
  }

  #toggleAt(target) {
    const item = this.#itemAt(target);
    if (item && !item.turns) this.#toggle(item.node);
  }

  #toggle(node) {
    if (this.view.at.tree.isBlock(node)) this.#change(() => this.layout.toggle(node));
  }

  #change(act) {
    act();
    this.#draw();
    this.#mark(this.view.at.chosen);
    this.camera.bring(this.layout.items.get(this.view.at.chosen));
  }

  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.box) return;
    const { chosen, tree } = this.view.at, item = this.layout?.items.get(chosen);
    const along = (here, there) => this.drawn.edges.find((edge) => edge[here] === chosen && edge[there] > 0)?.[there];
    const near = (step) => {
      const inside = [...this.layout.items.values()].filter((one) => one.parent === item?.parent && one.node > 0).map((one) => one.node).sort((a, b) => a - b);
      return inside[inside.indexOf(chosen) + step];
    };
    const keys = {
      ArrowDown: () => this.view.goTo(along("from", "to") ?? near(1)), ArrowUp: () => this.view.goTo(along("to", "from") ?? near(-1)),
      ArrowRight: () => this.view.goTo(near(1)), ArrowLeft: () => this.view.goTo(near(-1)),
      Enter: () => this.#toggle(chosen), Escape: () => this.view.goTo(tree.run.parents[chosen]),
      "+": () => this.camera.zoom(1.25), "-": () => this.camera.zoom(0.8), 0: () => this.camera.fit(this.drawn), x: () => this.view.scroller.focus(),
    };
    if (!item || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
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
