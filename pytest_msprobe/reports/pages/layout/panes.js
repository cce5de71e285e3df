/* Panes next to each other or one above the other. One with a size of its own can be dragged, by keys too, and folded;
   both stay with the reader. On a narrow screen panes are stacked, in the order of data-narrow, and the page scrolls. */

const isNarrow = () => window.matchMedia("(max-width: 800px)").matches;
const LEAST_PANE = { width: 160, height: 60 }, PANE_STEP = 24;

class Pane {
  constructor(box) {
    const title = box.getAttribute("aria-label"), { direction } = box.parentElement.dataset;
    Object.assign(this, { box, name: `${kindOfPage}.${box.id}`, side: direction === "row" ? "width" : "height" });
    this.button = button("", () => this.change({ isFolded: !this.isFolded }), "fold");
    filled(this.button, [], { "aria-label": `show ${title}`, "aria-controls": box.id });
    box.prepend(element("div", [this.button, element("h2", title)], "pane-head"));
    this.line = this.#separator(title);
    const isFolded = window.innerWidth < Number(box.dataset.folds ?? 0) && !isNarrow();
    this.state = remembered(this.name, { size: box.dataset.size, isFolded });
    this.#show();
  }

  get size() { return Math.round(this.box.getBoundingClientRect()[this.side]); }
  get isFolded() { return this.state.isFolded; }

  /* What does not fit is cut by the style. */
  #show() {
    const { size, isFolded } = this.state;
    this.box.style[this.side] = `${Math.max(this.box.dataset.least ?? LEAST_PANE[this.side], size)}px`;
    this.box.classList.toggle("folded", isFolded);
    this.button.setAttribute("aria-expanded", String(!isFolded));
    this.line.setAttribute("aria-valuenow", this.size);
  }

  change(change) {
    Object.assign(this.state, change);
    this.#show();
    remember(this.name, this.state);
    window.dispatchEvent(new Event("resize"));
  }

  /* The border of the pane, which may be before or after it. */
  #separator(title) {
    const isRow = this.side === "width", sign = this.box.previousElementSibling ? -1 : 1;
    const line = element("div", [], `separator ${sign > 0 ? "before" : "after"}`, {
      role: "separator", tabindex: 0, "aria-orientation": isRow ? "vertical" : "horizontal",
      "aria-label": `Size of ${title}`, "aria-controls": this.box.id, "aria-valuemin": 0, "aria-valuemax": 4000,
    });
    onDrag(line, () => this.size, (size, x, y) => this.change({ size: size + sign * (isRow ? x : y) }));
    line.addEventListener("dblclick", () => this.change({ size: this.box.dataset.size }));
    const resize = ([down, right]) => () => this.change({ size: this.size + sign * (down + right) * PANE_STEP });
    const moves = Object.fromEntries(Object.entries(ARROWS).map(([key, move]) => [key, resize(move)]));
    onKeys(line, () => ({ ...moves, Enter: () => this.button.click() }));
    this.box[sign > 0 ? "after" : "before"](line);
    return line;
  }
}

/* While a border is dragged, `moved` is called with the size at the start and how far the pointer is from there. */
function onDrag(line, sizeOf, moved) {
  line.addEventListener("pointerdown", (event) => {
    const size = sizeOf();
    line.setPointerCapture(event.pointerId);
    line.onpointermove = (now) => moved(size, now.clientX - event.clientX, now.clientY - event.clientY);
    line.onlostpointercapture = () => { line.onpointermove = null; };
    event.preventDefault();
  });
}

/* Draw a box anew when it has another size, but not for paper, which gets what was on the screen. */
function onSize(box, draw) {
  new ResizeObserver(() => { if (!window.matchMedia("print").matches) draw(); }).observe(box);
}

const panes = new Map();

function makePanes(box) {
  for (const child of box.querySelectorAll(":scope > [data-size]")) panes.set(child.id, new Pane(child));
}

/* Unfold a pane; on a narrow screen also scroll to it, but not away from the head of a page that opens without a link. */
function openPane(id) {
  if (panes.get(id)?.isFolded) panes.get(id).change({ isFolded: false });
  if (isNarrow() && (document.readyState === "complete" || location.hash)) byId(id).scrollIntoView();
}

document.querySelectorAll(".panes").forEach(makePanes);
