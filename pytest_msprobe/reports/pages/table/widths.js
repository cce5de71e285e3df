/* How wide the columns of a table are: as they are declared, or as the reader dragged them. */

const LEAST_COLUMN = 36, COLUMN_STEP = 16;

class ColumnWidths {
  constructor(columns, name) {
    Object.assign(this, { columns, name, chosen: new Map(Object.entries(remembered(name, {}))) });
  }

  of(column) {
    return this.chosen.get(column.title) ?? Math.max((isNarrow() && column.narrow) || column.width, this.#ofTitle(column));
  }

  /* What a title takes with the arrow of a sorted column. */
  #ofTitle({ title }) {
    this.pen ??= Object.assign(element("canvas").getContext("2d"), { font: "600 13px system-ui, sans-serif" });
    return Math.ceil(this.pen.measureText(`${title} ▼`).width) + 18;
  }

  all(room) {
    const widths = this.columns.map((column) => this.of(column)), left = room - widths.reduce((sum, width) => sum + width, 0);
    const growing = this.columns.findIndex((column) => column.grow && !this.chosen.has(column.title));
    if (growing >= 0 && left > 0) widths[growing] += left;
    return widths;
  }

  /* Keep a width, or forget it where there is none. */
  set(column, width, changed) {
    if (width === null) this.chosen.delete(column.title);
    else this.chosen.set(column.title, Math.max(LEAST_COLUMN, Math.round(width)));
    remember(this.name, Object.fromEntries(this.chosen));
    changed();
  }

  /* The right border of a title: dragging it sets the width of the column, a double click takes that back. */
  grip(column, title, changed) {
    const grip = element("span", [], "grip");
    onDrag(grip, () => title.offsetWidth, (width, moved) => this.set(column, width + moved, changed));
    grip.addEventListener("dblclick", () => this.set(column, null, changed));
    return grip;
  }

  press(event, column, title, changed) {
    const sign = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!event.shiftKey || !sign) return;
    event.preventDefault();
    event.stopPropagation();
    this.set(column, title.offsetWidth + sign * COLUMN_STEP, changed);
  }
}
