/* The graph as boxes and edges: modules around their calls. What is open and chosen is so in the outline too. */

const AFTER_OUTLINE = 80, MODULE_HEAD = 14, LEAST_ZOOM = 0.05, LEAST_FIRST_ZOOM = 0.75, MOST_ZOOM = 3, LEAST_PAN = 4;
// How wide the narrower of the common papers is between its margins, in pixels of CSS.
const PAPER = 680;
// Room for borders, which are as wide as a pixel of the screen however small the drawing is.
const BORDERS = 6;
const BOXES_HELP = "Arrows follow the values, into an open module too, or go to the next call. Enter opens and closes; "
  + "Escape goes out to the module. The outline has the same calls as a tree: press x to go there.";

class BoxesView {
  constructor(view) {
    Object.assign(this, { view, scale: 1 });
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
    window.addEventListener("beforeprint", () => {
      this.stage.style.zoom = Math.min(this.scale, PAPER / this.width);
    });
    window.addEventListener("afterprint", () => { this.stage.style.zoom = this.scale; });
  }

  #head() {
    const zooms = [
      ["+", "larger (+)", () => this.zoom(1.25)], ["−", "smaller (-)", () => this.zoom(0.8)],
      ["fit", "all of it (0)", () => this.fit()],
    ].map(([text, title, act]) => filled(button(text, act, "zoom"), [], { title, "aria-label": title }));
    return element("div", [element("h2", "Boxes and edges"), ...zooms], "pane-head");
  }

  /* Show what is chosen. After the outline, so that a page opens as fast as without. */
  show() {
    this.waiting ??= setTimeout(() => { this.waiting = null; this.#show(); }, AFTER_OUTLINE);
  }

  #show() {
    const { layout, chosen } = this.view.at, isFirst = !this.layout;
    if (!this.box.clientHeight) return;
    const drawn = layout.choose(chosen);
    if (drawn !== this.drawn || layout !== this.layout) this.#draw(layout);
    Object.assign(this, { drawn, layout });
    if (isFirst) this.zoom(Math.max(LEAST_FIRST_ZOOM, Math.min(1, this.box.clientWidth / this.width)));
    this.#mark(chosen);
    this.#bring(chosen);
  }

  #draw(layout) {
    const { items } = layout, boxes = items.map((item) => this.#box(item));
    this.stage.replaceChildren(...boxes);
    const laid = layout.layOut(boxes.map((box) => ({ width: box.offsetWidth + BORDERS, height: box.offsetHeight })));
    laid.places.forEach(({ x, y, width, height }, at) => {
      // The name of an open module is above what is in it.
      const head = items[at].isOpen ? MODULE_HEAD : 0;
      const left = x - width / 2, top = y - height / 2 - head;
      boxes[at].style = `left: ${left}px; top: ${top}px; width: ${width}px; height: ${height + head}px`;
    });
    Object.assign(this, laid);
    this.stage.style = `width: ${this.width}px; height: ${this.height}px; zoom: ${this.scale}`;
    this.stage.append(svg("svg", {}, this.edges.flatMap((edge) => this.#edge(edge, items))));
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

  #edge({ from, to, count, isCertain, points }, items) {
    const outcome = this.#outcomeOf(items[from - 1].nodes), end = points.at(-1), before = points.at(-2);
    const angle = (180 * Math.atan2(end.y - before.y, end.x - before.x)) / Math.PI, middle = points[points.length >> 1];
    const ends = { "data-from": items[from - 1].node, "data-to": items[to - 1].node };
    const facts = { class: `edge ${outcome} ${isCertain ? "" : "uncertain"}`, ...ends };
    const head = { ...facts, d: "M-6 -3.5L0 0L-6 3.5", transform: `translate(${end.x} ${end.y}) rotate(${angle})` };
    const counted = count > 1 ? [svg("text", { class: "count", x: middle.x + 4, y: middle.y }, count)] : [];
    return [svg("path", { ...facts, d: pathThrough(points) }), svg("path", head), ...counted];
  }

  /* Let a call and its values stand out. */
  #mark(chosen) {
    const { tree, layout } = this.view.at, isIn = (node) => node >= chosen && node <= tree.last[chosen];
    for (const call of this.stage.querySelectorAll(".call")) {
      call.classList.toggle("chosen", Number(call.dataset.node) === chosen);
    }
    for (const edge of this.stage.querySelectorAll(".edge")) {
      const { from, to } = edge.dataset;
      edge.classList.toggle("given", isIn(to) && !isIn(from));
      edge.classList.toggle("taken", isIn(from) && !isIn(to));
    }
    const notes = [layout.isPart && "drawn with what is around it", !this.edges.length && "no values were followed"];
    const words = [this.view.name(), GRAPH_OUTCOMES[tree.run.outcomes[chosen]], ...notes];
    this.said.textContent = words.filter(Boolean).join(", ");
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

  fit() { this.zoom(Math.min(1, this.box.clientWidth / this.width, this.box.clientHeight / this.height) / this.scale); }

  #bring(node) {
    const place = this.places[this.layout.items.findIndex((item) => item.node === node)], { box, scale } = this;
    if (place) bringInSight(box, place.x * scale, (place.y - place.height / 2 + MODULE_HEAD) * scale);
  }

  /* A finger scrolls; a mouse drags, which is no click. */
  #drag() {
    let moved = 0;
    this.stage.addEventListener("pointerdown", () => { moved = 0; });
    this.stage.addEventListener("pointermove", ({ pointerType, buttons, movementX, movementY }) => {
      if (pointerType !== "mouse" || !buttons) return;
      moved += Math.hypot(movementX, movementY);
      if (moved > LEAST_PAN) this.box.scrollBy(-movementX, -movementY);
    });
    this.stage.addEventListener("click", (event) => {
      if (moved > LEAST_PAN) event.stopImmediatePropagation();
    }, { capture: true });
  }

  #keys() {
    const { view } = this, { chosen, tree, layout } = view.at;
    // A key may come before the drawing of another run.
    if (layout !== this.layout) this.#show();
    if (layout !== this.layout || chosen <= 0) return {};
    const go = (node) => view.choose(node), own = layout.owners[chosen];
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
