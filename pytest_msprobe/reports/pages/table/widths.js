/* How wide the columns of a table are: as what they show needs, or as the reader dragged them. No number is cut. A name gives
   way, as it is cut in front, so that what comes before it and a number next to it are in sight. */

const LEAST_COLUMN = 36, COLUMN_STEP = 16, MOST_TEXT = 230, LEAST_NAME = 110, MOST_NAME = 260;
// A number takes no more than this, which is as long as any that is shown.
const LONGEST_NUMBER = "-0.001234567";

class ColumnWidths {
  constructor(columns, rows, name) {
    Object.assign(this, { columns, name, chosen: new Map(Object.entries(remembered(name, {}))) });
    const pen = element("canvas").getContext("2d");
    const measured = (texts, weight) => {
      pen.font = `${weight} 13px system-ui, sans-serif`;
      return Math.ceil(Math.max(0, ...texts.map((text) => pen.measureText(text).width))) + 18;
    };
    this.needed = new Map(columns.map((column) => {
      const most = column.number ? Infinity : column.name ? MOST_NAME : MOST_TEXT;
      // A title with the arrow of a sorted column.
      return [column, Math.max(measured([`${column.title} ▼`], 600), Math.min(most, measured(longest(column, rows), 400)))];
    }));
  }

  all(room) {
    const { columns, chosen } = this, isFree = (column) => column && !chosen.has(column.title);
    const widths = columns.map((column) => chosen.get(column.title) ?? this.needed.get(column));
    const at = columns.findIndex((column) => column.name), growing = columns.findIndex((column) => column.grow);
    if (isFree(columns[at])) {
      const others = sum(widths.slice(0, at)) + (columns[at + 1]?.number ? widths[at + 1] : 0);
      widths[at] = Math.max(LEAST_NAME, Math.min(widths[at], room - others));
    }
    if (isFree(columns[growing])) widths[growing] += Math.max(0, room - sum(widths));
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

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

/* Of the texts that a column shows some of the longest, which may be the widest. */
function longest(column, rows) {
  const texts = new Set(rows.map((row) => {
    const value = column.of(row);
    return typeof value === "number" && !Number.isInteger(value) ? LONGEST_NUMBER : String(value ?? "");
  }));
  const most = [...texts].reduce((length, text) => Math.max(length, text.length), 0);
  return [...texts].filter((text) => text.length > most - 4).slice(0, 50);
}
