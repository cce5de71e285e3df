/* A grid of cells by row and column on a canvas. Many rows are scrolled or share pixels; of the cells on a pixel the
   gravest is seen, and is what the pointer finds. */

const MOST_NAME = 250, NAME_HEIGHT = 13, MOST_ROW = 34, MOST_TITLE = 130, LEAST_COLUMNS = 8;
// Pixels that a drag takes at least, and a cell that is parted from its neighbours.
const LEAST_DRAG = 8, LEAST_SPLIT = 8;
const MOVES = { ...ARROWS, PageUp: [-20, 0], PageDown: [20, 0], Home: [0, -Infinity], End: [0, Infinity] };
const within = (value, low, high) => Math.max(low, Math.min(high, value));

class CellGrid {
  /* A cell has a `row` and a `column`, null over the names of rows. Given are how many `rows` and `columns` there are;
     the `levels` of a row, a byte for each column, 0 where there is nothing and the higher the graver; the `colours` of
     levels, and which are `hatched`, by how far lines are apart; `nameOf` a row and `groupOf` it; `titleOf` a column,
     upright where `isTall`, or at most so many `titles`, columns with their texts; the `noun` of columns; `textOf` a
     cell. A row is as high as fits, but no less than `leastRow`. `choose` is called with the cell that keys lead to,
     `open` with a clicked one; `keys` adds keys, `marks` draws over cells, `changed` is called when other columns are
     shown. */
  constructor(box, label, options) {
    const none = () => "", id = `${box.id}-cell`;
    Object.assign(this, {
      groupOf: none, hatched: {}, leastRow: 0, keys: none, marks: none, changed: none,
      from: 0, to: options.columns, rowHeight: 0, drawn: [], cursor: { row: null, column: null }, open: options.choose,
      ...options,
    });
    const facts = { tabindex: 0, role: "application", "aria-label": label, "aria-describedby": id };
    this.canvas = element("canvas", [], "", facts);
    this.extent = element("div", this.canvas);
    this.scroller = element("div", this.extent, "scroller cells");
    this.tip = element("div", [], "tip", { hidden: "" });
    this.said = element("div", [], "unseen", { id, role: "status" });
    box.append(this.scroller, this.tip, this.said);
    this.#follow();
    onKeys(this.canvas, () => this.#keys());
    this.scroller.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()));
    window.addEventListener("themechange", () => this.show());
    onSize(this.scroller, () => this.draw());
  }

  /* Buttons that show fewer cells or more of them. */
  buttons() {
    const all = [["+", "closer (+)", 2], ["−", "farther (-)", 0.5], ["all", "all of it (0)", 0]];
    const made = all.map(([text, title, by]) => filled(button(text, () => this.closer(by)), [], { title }));
    return element("span", made, "closer", { role: "group", "aria-label": "Cells shown" });
  }

  /* Draw cells that are others than before. */
  show(rows = this.rows) {
    Object.assign(this, { rows, drawn: [], names: null, palette: null });
    this.draw();
  }

  /* Move to a cell and bring it into sight. */
  goTo({ row, column }) {
    this.cursor = { row, column: column ?? this.cursor.column };
    this.draw();
    if (row === null || !this.row) return;
    const y = row * this.row, room = this.scroller.clientHeight - this.top;
    this.scroller.scrollTop = within(this.scroll, y + this.row - room, y);
    if (this.cursor.column !== null && !this.isShown(this.cursor.column)) this.#showAround(this.to - this.from);
    this.said.textContent = this.textOf(this.cursor);
  }

  /* Where things are. */

  isShown(column) { return column >= this.from && column < this.to; }
  x(column) { return this.left + (this.width * (column - this.from)) / (this.to - this.from); }
  y(row) { return this.top + row * this.row - this.scroll; }
  middle({ row, column }) { return [this.x(column + 0.5), this.y(row + 0.5)]; }
  #columnAt(x) { return Math.floor(this.from + ((this.to - this.from) * (x - this.left)) / this.width); }
  #rowAt(y) { return Math.floor((y - this.top + this.scroll) / this.row); }

  #measure(pen, { clientWidth, clientHeight, scrollTop }) {
    const widthOf = (text) => pen.measureText(text).width;
    if (!this.names) {
      const all = Array.from({ length: this.rows }, (_, row) => [this.nameOf(row), this.groupOf(row)]);
      const isOne = new Set(all.map(([, group]) => group)).size < 2;
      this.names = all.map(([name, group]) => ({ name, group, inFull: isOne ? name : `${name} (${group})` }));
    }
    const longest = this.names.reduce((long, { inFull }) => (inFull.length > long.length ? inFull : long), "");
    this.titleWidth = Math.max(...[0, this.columns - 1].map((column) => widthOf(this.titleOf(column))));
    this.top = this.isTall ? Math.min(MOST_TITLE, this.titleWidth) + 12 : 20;
    this.left = Math.min(MOST_NAME, clientWidth * 0.4, Math.max(widthOf(longest), widthOf(this.noun)) + 16);
    this.width = clientWidth - this.left - 8;
    this.fit = within((clientHeight - this.top - 4) / Math.max(1, this.rows), this.leastRow, MOST_ROW);
    this.row = Math.max(this.fit, this.rowHeight);
    this.height = Math.min(clientHeight - this.top, this.row * this.rows);
    this.scroll = scrollTop;
    this.scroller.style.maxHeight = `${this.top + MOST_ROW * this.rows + 8}px`;
    this.extent.style.height = `${Math.max(clientHeight - 1, Math.floor(this.top + this.row * this.rows))}px`;
  }

  /* Drawing. */

  draw() {
    const { clientWidth, clientHeight } = this.scroller;
    if (!clientWidth) return;
    const pen = sharpPen(this.canvas, clientWidth, clientHeight), ratio = window.devicePixelRatio || 1;
    this.#measure(pen, this.scroller);
    const drawn = [ratio, this.from, this.to, this.scroll, this.row, this.width, this.height];
    // Most that is drawn anew only moves the cursor.
    if (this.rows && drawn.some((one, place) => one !== this.drawn[place])) this.image = this.#image(ratio);
    this.drawn = drawn;
    if (this.rows) pen.drawImage(this.image, this.left, this.top, this.width, this.height);
    pen.textBaseline = "middle";
    this.#drawNames(pen);
    this.#drawTitles(pen);
    pen.beginPath();
    pen.rect(this.left, this.top, this.width, this.height);
    pen.clip();
    if (this.cursor.row !== null && this.cursor.column !== null) this.frame(pen, this.cursor, themeColour("fore"));
    this.marks(pen);
  }

  /* A frame that is seen on any colour. */
  frame(pen, { row, column }, colour) {
    const wide = Math.max(7, this.x(1) - this.x(0)), high = Math.max(7, this.row);
    const [x, y] = this.middle({ row, column });
    for (const [strokeStyle, lineWidth] of [[themeColour("back"), 4], [colour, 2]]) {
      Object.assign(pen, { strokeStyle, lineWidth });
      pen.strokeRect(x - wide / 2 + 1, y - high / 2 + 1, wide - 2, high - 2);
    }
  }

  #image(ratio) {
    const wide = Math.max(1, Math.round(this.width * ratio)), high = Math.max(1, Math.round(this.height * ratio));
    const image = new OffscreenCanvas(wide, high), pen = image.getContext("2d"), data = pen.createImageData(wide, high);
    const pixels = new Uint32Array(data.data.buffer), colours = (this.palette ??= paletteOf(this.colours()));
    const columns = Uint32Array.from({ length: wide + 1 }, (_, x) => this.#columnAt(this.left + x / ratio));
    const rowOf = (y) => this.#rowAt(this.top + y / ratio), isSplit = this.row > LEAST_SPLIT;
    let from = -1, to = -1, line = null, hatched = [];
    for (let y = 0; y < high; y++) {
      const first = rowOf(y), last = Math.max(first + 1, rowOf(y + 1));
      if (isSplit && rowOf(y + ratio) !== first) continue;
      if (first !== from || last !== to) {
        [from, to, line] = [first, last, this.#gravest(first, last, columns)];
        hatched = Array.from(line.keys()).filter((x) => this.hatched[line[x]]);
      }
      for (let x = 0; x < wide; x++) pixels[y * wide + x] = colours[line[x]];
      for (const x of hatched) if ((x + y) % (this.hatched[line[x]] * ratio) > 1.5 * ratio) pixels[y * wide + x] = 0;
    }
    pen.putImageData(data, 0, 0);
    return image;
  }

  /* Of each pixel along some rows the gravest level; wide cells are parted by a clear pixel. */
  #gravest(first, last, columns) {
    const wide = columns.length - 1, made = new Uint8Array(wide), isSplit = wide / (this.to - this.from) > LEAST_SPLIT;
    for (let row = first; row < Math.min(last, this.rows); row++) {
      const levels = this.levels(row);
      for (let x = 0; x < wide; x++) {
        const from = columns[x], next = columns[x + 1], to = isSplit && next > from ? from : Math.max(next, from + 1);
        for (let column = from; column < to; column++) if (levels[column] > made[x]) made[x] = levels[column];
      }
    }
    return made;
  }

  /* As many names as there is room for: those of the first rows of groups, then that of the chosen row. The first of a
     group says which it is. */
  #drawNames(pen) {
    const [first, last] = [this.top, this.top + this.height].map((y) => this.#rowAt(y));
    const chosen = this.cursor.row, taken = [], met = new Set();
    const rows = Array.from({ length: Math.min(this.rows, last + 1) - first }, (_, at) => first + at);
    const begins = rows.filter((row) => row === first || this.names[row].group !== this.names[row - 1].group);
    for (const row of new Set([...begins, ...rows.filter((one) => one === chosen), ...rows])) {
      const y = within(this.y(row + 0.5), this.top + 6, this.top + this.height - 6);
      const { name, group, inFull } = this.names[row];
      if (taken.some((other) => Math.abs(other - y) < NAME_HEIGHT)) continue;
      taken.push(y);
      pen.fillStyle = themeColour(row === chosen ? "fore" : "soft");
      pen.fillText(fitted(pen, begins.includes(row) || !met.has(group) ? inFull : name, this.left - 12), 4, y);
      met.add(group);
    }
    const start = this.row < NAME_HEIGHT ? this.left - 8 : 0;
    for (const row of begins.slice(1)) {
      strokeThrough(pen, [[start, this.y(row)], [this.left, this.y(row)]], themeColour("line"));
    }
  }

  #drawTitles(pen) {
    const { isTall } = this, last = this.left + this.width - this.titleWidth / 2;
    pen.fillStyle = themeColour("soft");
    pen.fillText(this.noun, 4, this.top - 10);
    pen.textAlign = isTall ? "left" : "center";
    for (const [column, text] of this.titles(this.width / (isTall ? NAME_HEIGHT : this.titleWidth + 20))) {
      const x = this.x(column + 0.5);
      pen.save();
      pen.translate(isTall ? x : Math.min(x, last), this.top - (isTall ? 6 : 10));
      pen.rotate(isTall ? -Math.PI / 2 : 0);
      pen.fillText(isTall ? fitted(pen, text, MOST_TITLE) : text, 0, 0);
      pen.restore();
    }
    pen.textAlign = "left";
  }

  titles(most) {
    const every = niceStep((this.to - this.from) / most), columns = Array.from({ length: this.columns }, (_, at) => at);
    return columns.filter((at) => at % every === 0 && this.isShown(at)).map((at) => [at, this.titleOf(at)]);
  }

  /* Fewer columns, or all of them. */

  showColumns(from, to) {
    Object.assign(this, { from: Math.max(0, from), to: Math.min(this.columns, to) });
    this.draw();
    this.changed();
  }

  #showAround(size, middle = this.cursor.column ?? (this.from + this.to) / 2) {
    const wide = within(Math.round(size), Math.min(LEAST_COLUMNS, this.columns), this.columns);
    const from = within(Math.round(middle - wide / 2), 0, this.columns - wide);
    this.showColumns(from, from + wide);
  }

  /* Higher rows until each has room for its name, then fewer columns; the other way round where `by` is below 1. */
  closer(by) {
    const isAll = this.to - this.from === this.columns, isForRows = by > 1 ? this.row < NAME_HEIGHT : isAll;
    if (by && !isForRows) return this.#showAround((this.to - this.from) / by);
    this.rowHeight = by * this.row > this.fit ? by * this.row : 0;
    if (!by) return this.showColumns(0, this.columns);
    this.draw();
    this.scroller.scrollTop = ((this.cursor.row ?? 0) + 0.5) * this.row - this.height / 2;
  }

  /* The pointer and keys. */

  cellAt({ clientX, clientY }) {
    const { left, top } = this.canvas.getBoundingClientRect(), x = clientX - left, y = clientY - top;
    const [first, last] = [this.#rowAt(y), this.#rowAt(y + 1)], [from, to] = [this.#columnAt(x), this.#columnAt(x + 1)];
    if (y < this.top || first >= this.rows || x >= this.left + this.width) return null;
    let found = { row: first, column: x < this.left ? null : from }, most = -1;
    for (let row = first; found.column !== null && row < within(last, first + 1, this.rows); row++) {
      for (let column = from; column < Math.max(from + 1, to); column++) {
        const level = this.levels(row)[column];
        if (level > most) [most, found] = [level, { row, column }];
      }
    }
    return found;
  }

  /* A click opens a cell; what is dragged over is then all that is shown. */
  #follow() {
    const { canvas } = this;
    let pressed = null, cell = null;
    canvas.addEventListener("mousemove", (event) => this.#point(event, this.cellAt(event)));
    canvas.addEventListener("mouseleave", (event) => this.#point(event, null));
    canvas.addEventListener("mousedown", (event) => { [pressed, cell] = [event.clientX, this.cellAt(event)]; });
    canvas.addEventListener("dblclick", () => this.showColumns(0, this.columns));
    canvas.addEventListener("mouseup", (event) => {
      const to = this.cellAt(event), [first, last] = [cell?.column, to?.column].sort((a, b) => a - b);
      const isDrag = Math.abs(event.clientX - pressed) > LEAST_DRAG && first >= 0 && last > first;
      if (isDrag) this.showColumns(first, last + 1);
      else if (cell && to) this.open(to);
      cell = null;
    });
  }

  #point({ clientX: x, clientY: y }, cell) {
    const text = cell ? this.textOf(cell) : "", isLeft = x < innerWidth / 2, isHigh = y < innerHeight / 2;
    this.tip.hidden = !text;
    this.tip.textContent = text;
    Object.assign(this.tip.style, {
      left: isLeft ? `${x + 12}px` : "auto", right: isLeft ? "auto" : `${innerWidth - x + 12}px`,
      top: isHigh ? `${y + 12}px` : "auto", bottom: isHigh ? "auto" : `${innerHeight - y + 12}px`,
    });
  }

  #keys() {
    const { row, column } = this.cursor, rowTo = (down) => within((row ?? 0) + down, 0, this.rows - 1);
    const columnTo = (right) => within((column ?? this.from) + right, 0, this.columns - 1);
    const go = ([down, right]) => () => this.choose({ row: rowTo(down), column: columnTo(right) });
    return {
      ...(this.rows ? Object.fromEntries(Object.entries(MOVES).map(([key, move]) => [key, go(move)])) : {}),
      Enter: () => row !== null && this.open(this.cursor), "+": () => this.closer(2), "-": () => this.closer(0.5),
      0: () => this.closer(0), Escape: () => this.closer(0), ...this.keys(),
    };
  }
}

/* Colours as the pixels of an image have them, whichever way they are written. */
function paletteOf(colours) {
  const pen = new OffscreenCanvas(256, 1).getContext("2d", { willReadFrequently: true });
  colours.forEach((colour, level) => {
    pen.fillStyle = colour;
    pen.fillRect(level, 0, 1, 1);
  });
  return new Uint32Array(pen.getImageData(0, 0, 256, 1).data.buffer);
}
