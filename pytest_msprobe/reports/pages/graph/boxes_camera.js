/* Which part of the drawing is seen, and how large: dragged, zoomed by wheel, buttons and keys. */

const LEAST_ZOOM = 0.05, LEAST_FIRST_ZOOM = 0.75, MOST_ZOOM = 3;

class BoxesCamera {
  constructor(box, stage) {
    Object.assign(this, { box, stage, x: 0, y: 0, scale: 1, hasMoved: false });
    box.addEventListener("wheel", (event) => {
      event.preventDefault();
      const { left, top } = box.getBoundingClientRect();
      this.zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1, event.clientX - left, event.clientY - top);
    }, { passive: false });
    box.addEventListener("pointerdown", (event) => this.#grab(event));
  }

  #grab(event) {
    if (event.button) return;
    const start = { x: event.clientX - this.x, y: event.clientY - this.y };
    this.hasMoved = false;
    const move = (moved) => {
      this.hasMoved ||= Math.hypot(moved.clientX - start.x - this.x, moved.clientY - start.y - this.y) > 4;
      if (this.hasMoved) this.#set(moved.clientX - start.x, moved.clientY - start.y, this.scale);
    };
    const end = new AbortController(), until = { signal: end.signal };
    window.addEventListener("pointermove", move, until);
    for (const name of ["pointerup", "pointercancel"]) window.addEventListener(name, () => end.abort(), until);
  }

  #set(x, y, scale) {
    Object.assign(this, { x, y, scale });
    this.stage.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${scale.toFixed(4)})`);
  }

  /* How large the drawing is. A new one is put in the middle, somewhat smaller where that shows all of its width. */
  room(width, height) {
    const isNew = this.width === undefined, scale = Math.max(LEAST_FIRST_ZOOM, Math.min(1, this.box.clientWidth / width));
    Object.assign(this, { width, height });
    if (isNew) this.#set(Math.max(0, (this.box.clientWidth - width * scale) / 2), 0, scale);
  }

  zoom(by, x = this.box.clientWidth / 2, y = this.box.clientHeight / 2) {
    const scale = Math.max(LEAST_ZOOM, Math.min(MOST_ZOOM, this.scale * by)), change = scale / this.scale;
    this.#set(x - (x - this.x) * change, y - (y - this.y) * change, scale);
  }

  fit() {
    const scale = Math.min(1, this.box.clientWidth / this.width, this.box.clientHeight / this.height);
    this.#set((this.box.clientWidth - this.width * scale) / 2, (this.box.clientHeight - this.height * scale) / 2, scale);
  }

  /* Move so that an item is in sight, in the middle where it was not. */
  bring(item) {
    if (!item) return this.fit();
    const x = item.x * this.scale + this.x, y = (item.y - (item.isOpen ? item.height / 2 - 40 : 0)) * this.scale + this.y, edge = 30;
    const isSeen = x > edge && x < this.box.clientWidth - edge && y > edge && y < this.box.clientHeight - edge;
    if (!isSeen) this.#set(this.x + this.box.clientWidth / 2 - x, this.y + this.box.clientHeight / 2 - y, this.scale);
  }
}
