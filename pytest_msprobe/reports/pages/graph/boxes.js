/* The graph as boxes and edges: modules around their calls. What is open and chosen is so in the outline too. */

const AFTER_OUTLINE = 80, MODULE_HEAD = 14, LEAST_ZOOM = 0.05, LEAST_FIRST_ZOOM = 0.75, MOST_ZOOM = 3, LEAST_DRAG = 4;
const BOXES_HELP = "Arrows follow the values or go to the next call in the module, down also into an open module. "
  + "Enter opens and closes, Escape goes out to the module. Plus, minus and 0 zoom. "
  + "The outline has the same calls as a tree: press x to go there.";

class BoxesView {
  constructor(view) {
    Object.assign(this, { view, layouts: new Map(), scale: 1 });
    // The outline is for those who listen; what is chosen here is said.
    this.stage = element("div", [], "stage", { "aria-hidden": true });
    this.box = element("div", this.stage, "boxes", {
      tabindex: 0, role: "application", "aria-label": "Boxes and edges", "aria-describedby": "boxes-help",
    });
    this.said = element("p", [], "said", { role: "status" });
    this.parts = [this.#head(), this.box, this.said, element("p", BOXES_HELP, "unseen", { id: "boxes-help" })];
    onKeys(this.box, () => this.#keys());
    onCalls(this.stage, view);
    this.#drag();
    this.box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1);
    }, { passive: false });
  }

  #head() {
    const zooms = [
      ["+", "larger (+)", () => this.zoom(1.25)], ["−", "smaller (-)", () => this.zoom(0.8)],
      ["fit", "all of it (0)", () => this.fit()],
    ].map(([text, title, act]) => filled(button(text, act, "zoom"), [], { title, "aria-label": title }));
    this.note = element("span", [], "note");
    return element("div", [element("h2", "Boxes and edges"), this.note, ...zooms], "pane-head");
  }

  /* Show what is chosen. After the outline, so that a page opens as fast as without. */
  show() {
    this.waiting ??= setTimeout(() => { this.waiting = null; this.#show(); }, AFTER_OUTLINE);
  }

  #show() {
    const { tree, flow, chosen } = this.view.at, isFirst = !this.layout;
    if (!this.box.clientHeight) return;
    if (!this.layouts.has(tree)) this.layouts.set(tree, new BoxesLayout(tree, flow));
    this.layout = this.layouts.get(tree);
    const drawn = this.layout.choose(chosen);
    if (drawn !== this.drawn || tree !== this.tree) this.#draw();
    Object.assign(this, { drawn, tree });
    if (isFirst) this.zoom(Math.max(LEAST_FIRST_ZOOM, Math.min(1, this.box.clientWidth / this.width)));
    this.note.textContent = this.#noteOn(this.layout.items);
    this.#mark(chosen);
    this.#bring(chosen);
  }

  #draw() {
    const { items } = this.layout, boxes = items.map((item) => this.#box(item));
    this.stage.replaceChildren(...boxes);
    const laid = this.layout.layOut(boxes.map((box) => ({ width: box.offsetWidth + 1, height: box.offsetHeight })));
    laid.places.forEach(({ x, y, width, height }, at) => {
      // The name of an open module is above what is in it.
      const head = items[at].isOpen ? MODULE_HEAD : 0;
      const size = head ? `width: ${width}px; height: ${height + head}px` : "";
      boxes[at].style = `left: ${x - width / 2}px; top: ${y - height / 2 - head}px; ${size}`;
    });
    Object.assign(this, laid);
    this.stage.style = `width: ${this.width}px; height: ${this.height}px; zoom: ${this.scale}`;
    this.stage.append(svg("svg", {}, this.edges.flatMap((edge) => this.#edge(edge))));
  }

  #noteOn(items) {
    const range = items.find((item) => item.range), inside = items.filter(({ parent }) => parent === range?.parent);
    if (range) return `${inside.filter((item) => !item.range).length} of ${plural(range.range[1], "call")} are drawn`;
    if (items.some(({ nodes }) => nodes.length > 1)) return "calls that are alike are one box";
    if (this.layout.isPart) return "of all that is open, what is around the chosen call";
    return this.edges.length ? "" : "no values were followed between these";
  }

  #box({ node, nodes, range, isOpen }) {
    const { tree } = this.view.at;
    if (nodes.length === 1) return callElement(this.view, node, isOpen, isOpen ? "module" : "");
    const labels = [nodes[0], nodes.at(-1)].map((one) => tree.label(one)[0]);
    const name = range ? `calls ${range[0] + 1} to ${range[0] + nodes.length}` : [...new Set(labels)].join(" to ");
    const wrong = nodes.reduce((sum, one) => sum + tree.wrong[one] + (tree.run.outcomes[one] === "f"), 0);
    const text = range ? `of ${range[1]}` : `${nodes.length} alike`;
    return callBox({ fold: "▸", name, texts: [text], badges: wrong ? [insideBadge(wrong)] : [] }, {
      class: `call others ${this.#outcomeOf(nodes)}`, "data-node": node, title: `${name}, ${text}: show them`,
    });
  }

  #outcomeOf(nodes) {
    const worst = nodes.map((node) => this.view.at.tree.worst[node]);
    return GRAPH_OUTCOMES[worst.reduce((one, other) => (GRAPH_SEVERITY[other] > GRAPH_SEVERITY[one] ? other : one))];
  }

  #edge({ from, to, count, isCertain, points }) {
    const outcome = this.#outcomeOf(this.layout.items[from - 1].nodes), end = points.at(-1), before = points.at(-2);
    const angle = (180 * Math.atan2(end.y - before.y, end.x - before.x)) / Math.PI, middle = points[points.length >> 1];
    const facts = { class: `edge ${outcome} ${isCertain ? "" : "uncertain"}`, "data-from": from, "data-to": to };
    const head = { ...facts, d: "M-6 -3.5L0 0L-6 3.5", transform: `translate(${end.x} ${end.y}) rotate(${angle})` };
    const counted = count > 1 ? [svg("text", { class: "count", x: middle.x + 4, y: middle.y }, count)] : [];
    return [svg("path", { ...facts, d: pathThrough(points) }), svg("path", head), ...counted];
  }

  /* Let a call and its values stand out. */
  #mark(chosen) {
    const { tree } = this.view.at, outcome = GRAPH_OUTCOMES[tree.run.outcomes[chosen]];
    const isIn = (number) => {
      const { node } = this.layout.items[number - 1];
      return node >= chosen && node <= tree.last[chosen];
    };
    for (const call of this.stage.querySelectorAll(".call")) {
      call.classList.toggle("chosen", Number(call.dataset.node) === chosen);
    }
    for (const edge of this.stage.querySelectorAll(".edge")) {
      const { from, to } = edge.dataset;
      edge.classList.toggle("given", isIn(to) && !isIn(from));
      edge.classList.toggle("taken", isIn(from) && !isIn(to));
    }
    this.said.textContent = chosen > 0 ? `${tree.run.names[chosen]}${outcome ? `, ${outcome}` : ""}` : "";
  }

  /* Which part of the drawing is seen, and how large. */

  zoom(by) {
    const { box } = this, scale = Math.max(LEAST_ZOOM, Math.min(MOST_ZOOM, this.scale * by));
    const change = scale / this.scale;
    const [left, top] = [[box.scrollLeft, box.clientWidth], [box.scrollTop, box.clientHeight]]
      .map(([start, size]) => (start + size / 2) * change - size / 2);
    this.scale = scale;
    this.stage.style.zoom = scale;
    box.scrollTo(left, top);
  }

  fit() {
    const { clientWidth, clientHeight } = this.box;
    this.zoom(Math.min(1, clientWidth / this.width, clientHeight / this.height) / this.scale);
  }

  /* Move so that a call is in sight, in the middle where it was not. */
  #bring(node) {
    const place = this.places[this.layout.items.findIndex((item) => item.node === node)], { box, scale } = this;
    if (!place) return;
    const x = place.x * scale, y = Math.max(place.y - place.height / 2 + 20, 0) * scale;
    const isIn = (at, start, size) => at > start && at < start + size;
    const isSeen = isIn(x, box.scrollLeft, box.clientWidth) && isIn(y, box.scrollTop, box.clientHeight);
    if (!isSeen) box.scrollTo(x - box.clientWidth / 2, y - box.clientHeight / 2);
  }

  /* A finger scrolls; a mouse drags, which is no click. */
  #drag() {
    const { box, stage } = this;
    let start = null, hasMoved = false;
    stage.addEventListener("pointerdown", ({ pointerType, button, clientX, clientY }) => {
      hasMoved = false;
      const isMouse = pointerType === "mouse" && !button, { scrollLeft, scrollTop } = box;
      start = isMouse ? { clientX, clientY, x: clientX + scrollLeft, y: clientY + scrollTop } : null;
    });
    window.addEventListener("pointermove", ({ buttons, clientX, clientY }) => {
      if (!buttons) start = null;
      if (!start) return;
      hasMoved ||= Math.hypot(clientX - start.clientX, clientY - start.clientY) > LEAST_DRAG;
      if (hasMoved) box.scrollTo(start.x - clientX, start.y - clientY);
    });
    stage.addEventListener("click", (event) => { if (hasMoved) event.stopImmediatePropagation(); }, { capture: true });
  }

  #keys() {
    const { view, layout } = this, { chosen, tree } = view.at;
    if (!layout || chosen <= 0) return {};
    const go = (node) => view.goTo(node), own = layout.owners[chosen];
    const along = (here, there) => layout.items[this.edges.find((edge) => edge[here] === own)?.[there] - 1]?.node;
    const inside = tree.children[tree.run.parents[chosen]], near = (step) => inside[inside.indexOf(chosen) + step];
    const into = tree.isOpen(chosen) ? tree.children[chosen][0] : undefined;
    return {
      ...view.keys(), x: () => view.enter("outline"), Escape: () => go(tree.run.parents[chosen]),
      ArrowDown: () => go(into ?? along("from", "to") ?? near(1)), ArrowUp: () => go(along("to", "from") ?? near(-1)),
      ArrowRight: () => go(near(1)), ArrowLeft: () => go(near(-1)),
      "+": () => this.zoom(1.25), "-": () => this.zoom(0.8), 0: () => this.fit(),
    };
  }
}

/* A line on which each inner point is a bend; it passes through the middles between them. */
function pathThrough([start, ...others]) {
  const end = others.pop(), bends = others.map((bend, at) => {
    const next = others[at + 1] ?? end;
    return `Q${bend.x} ${bend.y} ${(bend.x + next.x) / 2} ${(bend.y + next.y) / 2}`;
  });
  return `M${start.x} ${start.y}${bends.join("")}L${end.x} ${end.y}`;
}
