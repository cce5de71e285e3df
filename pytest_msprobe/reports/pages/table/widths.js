/* How wide the columns of a table are until the reader drags the corner of a title: as what they show needs, so that no
   number is cut. A name gives way, as it is cut in front: what comes before it, and a number next to it, are in sight. */

const MOST_TEXT = 230, LEAST_NAME = 110, MOST_NAME = 260;
// As long as any number that is shown.
const LONGEST_NUMBER = "-0.001234567";

function columnWidths(columns, rows) {
  const pen = element("canvas").getContext("2d");
  const measured = (texts, weight) => {
    pen.font = `${weight} 13px system-ui, sans-serif`;
    return Math.ceil(Math.max(0, ...texts.map((text) => pen.measureText(text).width))) + 18;
  };
  const needed = columns.map((column) => {
    const most = column.number ? Infinity : column.name ? MOST_NAME : MOST_TEXT;
    // A title has the arrow of a sorted column and the corner to drag it by.
    return Math.max(measured([`${column.title} ▼`], 600) + 6, Math.min(most, measured(longest(column, rows), 400)));
  });
  const sum = (chosen) => needed.filter((_, place) => chosen(place)).reduce((total, width) => total + width, 0);
  return columns.map(({ name, grow }, place) => {
    const near = sum((one) => one < place || (one === place + 1 && columns[one].number));
    const width = name ? `clamp(${LEAST_NAME}px, 100cqw - ${near}px, ${needed[place]}px)` : `${needed[place]}px`;
    return grow ? `max(${width}, 100cqw - ${sum((one) => one !== place)}px)` : width;
  });
}

/* Of the texts that a column shows some of the longest, one of which is the widest. */
function longest(column, rows) {
  const texts = new Set(rows.map((row) => {
    const value = column.of(row);
    return typeof value === "number" && !Number.isInteger(value) ? LONGEST_NUMBER : String(value ?? "");
  }));
  const most = [...texts].reduce((length, text) => Math.max(length, text.length), 0);
  return [...texts].filter((text) => text.length > most - 4).slice(0, 50);
}
