/* How wide the columns of a table are until the reader drags the corner of a title: as what they show needs, so that no
   number is cut. A name, which is cut in front, gives way to what comes before it and to a number next to it. */

const WIDEST_TEXT = 230, NARROWEST_NAME = 110, WIDEST_NAME = 260, ROWS_MEASURED = 1000, MEASURED = 60;
// As long as any number that is shown.
const LONGEST_NUMBER = "-0.001234567";

function columnWidths(columns, rows) {
  const pen = element("canvas").getContext("2d");
  const measured = (texts, weight) => {
    pen.font = `${weight} 13px system-ui, sans-serif`;
    return Math.ceil(Math.max(0, ...texts.map((text) => pen.measureText(text).width))) + 18;
  };
  const needed = columns.map((column) => {
    const most = column.number ? Infinity : column.name ? WIDEST_NAME : WIDEST_TEXT;
    // A title has the arrow of a sorted column and the corner to drag it by.
    return Math.max(measured([`${column.title} ▼`], 600) + 6, Math.min(most, measured(longest(column, rows), 400)));
  });
  const sum = (chosen) => needed.filter((_, place) => chosen(place)).reduce((total, width) => total + width, 0);
  return columns.map(({ name, grow }, place) => {
    const near = sum((one) => one < place || (one === place + 1 && columns[one].number));
    const width = name ? `clamp(${NARROWEST_NAME}px, 100cqw - ${near}px, ${needed[place]}px)` : `${needed[place]}px`;
    return grow ? `max(${width}, 100cqw - ${sum((one) => one !== place)}px)` : width;
  });
}

/* Of the texts that a column shows some of the longest, one of which is the widest. Of many rows a sample does: numbers
   that are not whole are taken for the longest, and others have room for one digit more. */
function longest(column, rows) {
  const every = Math.ceil(rows.length / ROWS_MEASURED), texts = new Set();
  for (let place = 0; place < rows.length; place += every) {
    const value = column.of(rows[place]), isWhole = typeof value !== "number" || Number.isInteger(value);
    texts.add(isWhole ? `${value ?? ""}${column.number ? "0" : ""}` : LONGEST_NUMBER);
  }
  const most = Math.max(0, ...[...texts].map((text) => text.length));
  return [...texts].filter((text) => text.length > most - 4).slice(0, 12).map((text) => text.slice(0, MEASURED));
}
