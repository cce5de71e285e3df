/* What drawings on a canvas share: colours, names that fit, numbers that are round, lines. */

// Asking for a colour may have the browser compute all styles anew.
const themeColours = new Map();

function themeColour(name) {
  const style = () => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  if (!themeColours.has(name)) themeColours.set(name, style());
  return themeColours.get(name);
}

window.addEventListener("themechange", () => themeColours.clear());

/* The least of 1, 2, 5, 10, 20 ... that is no less than a number. */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= least);
}

/* A name cut to a width of so many pixels; its end says most. */
function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let cut = 1;
  while (cut < text.length && pen.measureText(`…${text.slice(cut)}`).width > width) cut++;
  return `…${text.slice(cut)}`;
}

function strokeThrough(pen, points, colour, dash = [], width = 1) {
  Object.assign(pen, { strokeStyle: colour, lineWidth: width });
  pen.setLineDash(dash);
  pen.beginPath();
  points.forEach(([x, y]) => pen.lineTo(x, y));
  pen.stroke();
  pen.setLineDash([]);
  pen.lineWidth = 1;
}

function fillShape(pen, points, colour) {
  pen.fillStyle = colour;
  pen.beginPath();
  points.forEach(([x, y]) => pen.lineTo(x, y));
  pen.fill();
}

/* A triangle whose tip is at a place. */
function pointDown(pen, x, y, size, colour) {
  fillShape(pen, [[x - size, y - size], [x + size, y - size], [x, y]], colour);
}

/* A canvas as large as it is shown, with a pen that counts in pixels of the page. */
function sharpPen(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
  Object.assign(canvas, { width: width * ratio, height: height * ratio });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  return pen;
}

/* Show a tip next to the pointer, on the side where there is room; without a text it is hidden. */
function showTip(box, event, text) {
  const tip = byId("tip"), { left, top, width, height } = box.getBoundingClientRect();
  tip.hidden = !text;
  if (!text) return;
  const x = event.clientX - left, isLeft = x < width / 2;
  tip.textContent = text;
  Object.assign(tip.style, {
    left: isLeft ? `${x + 12}px` : "auto", right: isLeft ? "auto" : `${width - x + 12}px`,
    top: `${Math.min(event.clientY - top + 12, height - 48)}px`,
  });
}

/* What a pointer does on a canvas of cells: `tipOf` the cell under it is shown in a box, a click chooses the cell, and
   what `isDrag` from one cell to another zooms. */
function onCells(canvas, box, { cellAt, tipOf, choose, isDrag, zoom }) {
  let pressed = null;
  const show = (event, cell) => showTip(box, event, cell ? tipOf(cell) : "");
  canvas.addEventListener("mousemove", (event) => show(event, cellAt(event)));
  canvas.addEventListener("mouseleave", (event) => show(event, null));
  canvas.addEventListener("mousedown", (event) => { pressed = cellAt(event); });
  canvas.addEventListener("mouseup", (event) => {
    const cell = cellAt(event), from = pressed;
    pressed = null;
    if (cell && from && isDrag(from, cell)) zoom(from, cell);
    else if (cell) choose(cell);
  });
}
