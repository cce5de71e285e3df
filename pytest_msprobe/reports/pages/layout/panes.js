/* Panes next to each other or one above the other. One with a size of its own can be dragged, by keys too, and folded;
   both stay with the reader. On a narrow screen panes are stacked, in the order of data-narrow, and the page scrolls. */

const isNarrow = () => window.matchMedia("(max-width: 800px)").matches;
const LEAST_PANE = 160, PANE_STEP = 24;

class Pane {
  constructor(box, direction) {
    Object.assign(this, { box, isRow: direction === "row", name: `${kindOfPage}.${box.id}` });
    this.least = Number(box.dataset.least ?? (this.isRow ? LEAST_PANE : 60));
    this.first = Number(box.dataset.size);
    this.#addHead();
    this.resize(remembered(`${this.name}.size`, this.first));
    this.fold(remembered(`${this.name}.folded`, window.innerWidth < Number(box.dataset.folds ?? 0) && !isNarrow()));
  }

  get size() { return this.isRow ? this.box.offsetWidth : this.box.offsetHeight; }
  get isFolded() { return this.box.classList.contains("folded"); }
  get most() {
    const around = this.box.parentElement;
    return Math.max(this.least, (this.isRow ? around.clientWidth : around.clientHeight) - LEAST_PANE);
  }

  resize(size) {
    this.box.style[this.isRow ? "width" : "height"] = `${Math.max(this.least, size)}px`;
  }

  fold(isFolded) {
    this.box.classList.toggle("folded", isFolded);
    this.button.setAttribute("aria-expanded", String(!isFolded));
    this.button.textContent = isFolded ? "▸" : "▾";
  }

  change(act) {
    act();
    window.dispatchEvent(new Event("resize"));
  }

  setFolded(isFolded) {
    this.change(() => this.fold(isFolded));
    remember(`${this.name}.folded`, isFolded);
  }

  setSize(size) {
    this.change(() => this.resize(Math.min(this.most, size)));
    remember(`${this.name}.size`, this.size);
  }

  #addHead() {
    const title = this.box.getAttribute("aria-label");
    this.button = button("", () => this.setFolded(!this.isFolded), "fold");
    filled(this.button, [], { "aria-label": `show ${title}`, "aria-controls": this.box.id });
    this.box.prepend(element("div", [this.button, element("h2", title)], "pane-head"));
  }
}

/* The border of a pane; `sign` is -1 where the pane comes after it. */
function separator(pane, sign) {
  const line = element("div", [], `separator ${sign > 0 ? "before" : "after"}`, {
    role: "separator", tabindex: 0, "aria-orientation": pane.isRow ? "vertical" : "horizontal",
    "aria-label": `Size of ${pane.box.getAttribute("aria-label")}`, "aria-controls": pane.box.id,
    "aria-valuemin": pane.least, "aria-valuemax": 4000, "aria-valuenow": pane.first,
  });
  const say = () => line.setAttribute("aria-valuenow", Math.round(pane.size));
  onDrag(line, () => pane.size, (size, x, y) => pane.setSize(size + sign * (pane.isRow ? x : y)), say);
  line.addEventListener("dblclick", () => pane.setSize(pane.first));
  const resize = ([down, right]) => () => { pane.setSize(pane.size + sign * (down + right) * PANE_STEP); say(); };
  const moves = Object.fromEntries(Object.entries(ARROWS).map(([key, move]) => [key, resize(move)]));
  onKeys(line, () => ({ ...moves, Enter: () => pane.setFolded(!pane.isFolded) }));
  return line;
}

/* While a border is dragged, `moved` is called with the size at the start and how far the pointer is from there. */
function onDrag(line, sizeOf, moved, ended = () => {}) {
  line.addEventListener("pointerdown", (event) => {
    const size = sizeOf();
    line.setPointerCapture(event.pointerId);
    line.onpointermove = (now) => moved(size, now.clientX - event.clientX, now.clientY - event.clientY);
    line.onlostpointercapture = () => { line.onpointermove = null; ended(); };
    event.preventDefault();
  });
}

const panes = new Map();

function makePanes(box) {
  const { direction } = box.dataset;
  for (const child of box.querySelectorAll(":scope > [data-size]")) {
    const pane = new Pane(child, direction), isFirst = !child.previousElementSibling;
    panes.set(child.id, pane);
    if (isFirst) child.after(separator(pane, 1));
    else child.before(separator(pane, -1));
  }
}

function orderPanes() {
  const order = (child) => (isNarrow() ? child.dataset.narrow : 0);
  document.querySelectorAll(".panes > [data-narrow]").forEach((child) => { child.style.order = order(child); });
}

/* Unfold a pane; on a narrow screen also scroll to it, but not away from the head of a page that opens without a link. */
function openPane(id) {
  if (panes.get(id)?.isFolded) panes.get(id).setFolded(false);
  if (isNarrow() && (document.readyState === "complete" || location.hash)) byId(id).scrollIntoView();
}

document.querySelectorAll(".panes").forEach(makePanes);
orderPanes();
window.addEventListener("resize", orderPanes);
