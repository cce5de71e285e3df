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
    const head = element("div", undefined, "pane-head"), title = this.box.getAttribute("aria-label");
    this.button = element("button", undefined, "fold");
    this.button.setAttribute("aria-label", `show ${title}`);
    this.button.setAttribute("aria-controls", this.box.id);
    this.button.addEventListener("click", () => this.setFolded(!this.isFolded));
    head.append(this.button, element("h2", title));
    this.box.prepend(head);
  }
}

/* The border of a pane; `sign` is -1 where the pane comes after it. */
function separator(pane, sign) {
  const line = element("div", undefined, `separator ${sign > 0 ? "before" : "after"}`);
  const say = () => line.setAttribute("aria-valuenow", String(Math.round(pane.size)));
  const facts = { role: "separator", "aria-orientation": pane.isRow ? "vertical" : "horizontal", "aria-label": `Size of ${pane.box.getAttribute("aria-label")}`,
    "aria-controls": pane.box.id, "aria-valuemin": pane.least, "aria-valuemax": 4000, "aria-valuenow": pane.first };
  for (const [name, value] of Object.entries(facts)) line.setAttribute(name, value);
  line.tabIndex = 0;
  line.addEventListener("pointerdown", (event) => {
    const start = pane.isRow ? event.clientX : event.clientY, size = pane.size;
    line.setPointerCapture(event.pointerId);
    line.onpointermove = (moved) => pane.setSize(size + sign * ((pane.isRow ? moved.clientX : moved.clientY) - start));
    line.onlostpointercapture = () => { line.onpointermove = null; say(); };
    event.preventDefault();
  });
  line.addEventListener("dblclick", () => pane.setSize(pane.first));
  const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  line.addEventListener("keydown", (event) => {
    if (event.key === "Enter") pane.setFolded(!pane.isFolded);
    else if (event.key in STEPS) pane.setSize(pane.size + sign * STEPS[event.key] * PANE_STEP);
    else return;
    event.preventDefault();
    say();
  });
  return line;
}

const panes = new Map();

function makePanes(box) {
  const { direction } = box.dataset;
  for (const child of [...box.children]) {
    child.style.order = isNarrow() ? child.dataset.narrow ?? 0 : 0;
    if (!("size" in child.dataset)) continue;
    const pane = new Pane(child, direction), isFirst = !child.previousElementSibling;
    panes.set(child.id, pane);
    if (isFirst) child.after(separator(pane, 1));
    else child.before(separator(pane, -1));
  }
}

function orderPanes() {
  for (const child of document.querySelectorAll(".panes > [data-narrow]")) child.style.order = isNarrow() ? child.dataset.narrow : 0;
}

/* Unfold a pane; on a narrow screen also scroll to it, but not away from the head of a page that opens without a link. */
function openPane(id) {
  if (panes.get(id)?.isFolded) panes.get(id).setFolded(false);
  if (isNarrow() && (document.readyState === "complete" || location.hash)) byId(id).scrollIntoView();
}

document.querySelectorAll(".panes").forEach(makePanes);
window.addEventListener("resize", orderPanes);
