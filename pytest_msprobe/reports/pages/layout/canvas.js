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
