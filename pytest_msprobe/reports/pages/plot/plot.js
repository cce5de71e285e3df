/* Numbers of many calls along one axis, on a logarithmic scale. Zero has a band of its own; infinity and what could not
   be measured share one. */

const PLOT_LEFT = 58, PLOT_RIGHT = 10, PLOT_TOP = 18, PLOT_BAND = 28, PLOT_BOTTOM = 30, PLOT_NEAR = 12, PLOT_STEP = 10, LEAST_DECADES = 2;

class LogPlot {
  /* `canvas` is drawn on, `tip` is next to the point under the pointer. `titles` are those of both axes, `limits` lines
     across: their text and value, and whether what lies above fails or warns. `choose` is called with a point. */
  constructor(canvas, tip, { titles, limits, choose }) {
    Object.assign(this, { canvas, tip, titles, limits, points: [], drawn: [], unchosen: document.createElement("canvas") });
    window.addEventListener("themechange", () => this.draw(this.points, this.chosen, this.count));
    canvas.addEventListener("mousemove", (event) => this.#point(this.#nearest(event)));
    canvas.addEventListener("mouseleave", () => this.#point(null));
    canvas.addEventListener("click", (event) => {
      const found = this.#nearest(event);
      if (found) choose(found.point);
    });
  }

  /* Points have a `value`, number or null, an `outcome` that colours them, a `label`, and stand out where `isMarked`. Those
     that have a `place` are some of `count`. */
  draw(points, chosen, count = points.length) {
    this.points = points;
    this.count = count;
    const box = this.canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    if (!box.width) return;
    this.canvas.width = box.width * ratio;
    this.canvas.height = box.height * ratio;
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(ratio, ratio);
    this.pen.font = "11px system-ui, sans-serif";
    this.style = getComputedStyle(document.body);
    this.colours = new Map();
    this.#measure(box);
    this.#axes();
    this.#limits();
    this.#points();
    this.#limitTexts();
    for (const found of this.marked) this.#square(found, 7);
    this.unchosen.width = this.canvas.width;
    this.unchosen.height = this.canvas.height;
    this.unchosen.getContext("2d").drawImage(this.canvas, 0, 0);
    this.choose(chosen);
  }

  /* Ring a point; the others stay as they were drawn. */
  choose(point) {
    this.chosen = point;
    const found = point && this.drawn.find((one) => one.point === point);
    if (!this.pen) return;
    this.pen.save();
    this.pen.resetTransform();
    this.pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.pen.drawImage(this.unchosen, 0, 0);
    this.pen.restore();
    if (found) this.#ring(found);
  }

  #measure(box) {
    const values = this.points.map((point) => point.value).filter((value) => typeof value === "number");
    const powers = [...values, ...this.limits.map((limit) => limit.value)].filter((value) => value > 0 && value < Infinity).map(Math.log10);
    this.hasZero = values.includes(0);
    this.hasInfinity = values.includes(Infinity);
    this.lowest = Math.floor(powers.reduce((a, b) => Math.min(a, b), 0));
    this.highest = Math.max(this.lowest + LEAST_DECADES, Math.ceil(powers.reduce((a, b) => Math.max(a, b), this.lowest)));
    this.right = box.width - PLOT_RIGHT;
    // The text of a limit at the top is above its line.
    this.top = PLOT_TOP + (this.hasInfinity ? PLOT_BAND : 0);
    this.base = box.height - PLOT_BOTTOM;
    this.bottom = this.base - (this.hasZero ? PLOT_BAND : 0);
  }

  #x(place) { return PLOT_LEFT + ((this.right - PLOT_LEFT) * (place + 0.5)) / Math.max(1, this.count); }

  #y(value) {
    if (value === 0) return this.base - PLOT_BAND / 2;
    if (value === Infinity) return this.top - PLOT_BAND / 2;
    return this.bottom - ((this.bottom - this.top) * (Math.log10(value) - this.lowest)) / (this.highest - this.lowest);
  }

  #colour(name) {
    if (!this.colours.has(name)) this.colours.set(name, this.style.getPropertyValue(`--${name}`));
    return this.colours.get(name);
  }

  #line(y, colour, dash) {
    this.pen.strokeStyle = this.#colour(colour);
    this.pen.setLineDash(dash);
    this.pen.beginPath();
    this.pen.moveTo(PLOT_LEFT, y);
    this.pen.lineTo(this.right, y);
    this.pen.stroke();
    this.pen.setLineDash([]);
  }

  #text(text, x, y, align, colour = "soft") {
    this.pen.fillStyle = this.#colour(colour);
    this.pen.textAlign = align;
    this.pen.fillText(text, x, y);
  }

  #axes() {
    const most = Math.max(1, Math.floor((this.bottom - this.top) / 20));
    const step = Math.max(1, Math.ceil((this.highest - this.lowest) / most));
    for (let power = this.lowest; power <= this.highest; power += step) {
      const y = this.#y(10 ** power);
      this.#line(y, "line", []);
      this.#text(powerText(power), PLOT_LEFT - 6, y + 4, "right");
    }
    if (this.hasZero) this.#text("0", PLOT_LEFT - 6, this.#y(0) + 4, "right");
    if (this.hasInfinity) this.#text("inf, n/a", PLOT_LEFT - 6, this.#y(Infinity) + 4, "right");
    this.#line(this.base, "soft", []);
    const { count } = this, every = Math.max(1, niceStep((count * 70) / Math.max(1, this.right - PLOT_LEFT)));
    for (let place = 0; place < count; place += every) this.#text(String(place), this.#x(place), this.base + 12, "center");
    this.#text(this.titles.x, (PLOT_LEFT + this.right) / 2, this.base + 26, "center");
    this.pen.save();
    this.pen.translate(12, (this.top + this.base) / 2);
    this.pen.rotate(-Math.PI / 2);
    this.#text(this.titles.y, 0, 0, "center");
    this.pen.restore();
  }

  #limits() {
    for (const { value, outcome } of this.limits) this.#line(this.#y(value), outcome, [5, 4]);
  }

  #limitTexts() {
    for (const { value, text, outcome } of this.limits) {
      const width = this.pen.measureText(text).width, y = this.#y(value) - 4, left = this.#freePlace(width, y);
      this.pen.fillStyle = this.#colour("back");
      this.pen.fillRect(left - 2, y - 10, width + 4, 12);
      this.#text(text, left, y, "left", outcome);
    }
  }

  /* Where a text on this base line has no marked point under it: as far to the right as can be. */
  #freePlace(width, base) {
    const near = this.marked.filter(({ y }) => y > base - 14 && y < base + 6).map(({ x }) => x);
    for (let left = this.right - width; left > PLOT_LEFT; left -= PLOT_STEP) {
      if (!near.some((x) => x > left - 6 && x < left + width + 6)) return left;
    }
    return this.right - width;
  }

  #points() {
    this.drawn = [];
    this.marked = [];
    const wide = Math.ceil(this.right) + 1, taken = new Map();
    for (const { outcome } of this.points) if (!taken.has(outcome)) taken.set(outcome, new Uint8Array(wide * Math.ceil(this.base + 1)));
    this.points.forEach((point, place) => {
      if (typeof point.value !== "number") return;
      const found = { point, x: this.#x(point.place ?? place), y: this.#y(point.value) };
      this.drawn.push(found);
      // Marked points are drawn last, over the others and over texts; of many on one spot only one is drawn.
      const spots = taken.get(point.outcome), spot = Math.round(found.y) * wide + Math.round(found.x);
      if (spots[spot]) return;
      spots[spot] = 1;
      if (point.isMarked) this.marked.push(found);
      else this.#square(found, 3);
    });
  }

  #square({ point, x, y }, size) {
    this.pen.fillStyle = this.#colour(point.outcome);
    this.pen.fillRect(x - size / 2, y - size / 2, size, size);
  }

  #ring({ x, y }) {
    this.pen.strokeStyle = this.#colour("fore");
    this.pen.lineWidth = 1.5;
    this.pen.beginPath();
    this.pen.arc(x, y, 8, 0, 2 * Math.PI);
    this.pen.stroke();
    this.pen.lineWidth = 1;
  }

  #nearest(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, distance = PLOT_NEAR ** 2;
    for (const found of this.drawn) {
      const away = (found.x - x) ** 2 + (found.y - y) ** 2;
      if (away < distance) [best, distance] = [found, away];
    }
    return best;
  }

  #point(found) {
    this.tip.hidden = !found;
    if (!found) return;
    const { point, x, y } = found, width = this.canvas.clientWidth, isRight = x > width / 2;
    this.tip.textContent = `${point.label}: ${numberText(point.value)}`;
    this.tip.style.left = isRight ? "auto" : `${x + 10}px`;
    this.tip.style.right = isRight ? `${width - x + 10}px` : "auto";
    this.tip.style.top = `${Math.max(0, y - 12)}px`;
  }
}

/* A power of ten as one reads it: 0.01, 1, 100, 10⁴. */
function powerText(power) {
  if (Math.abs(power) <= 3) return power < 0 ? (10 ** power).toFixed(-power) : String(10 ** power);
  return `10${[...String(power)].map((sign) => SUPERSCRIPTS[sign]).join("")}`;
}

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/* What the marks of a plot mean: pairs of a class of the sample and its words. */
function plotLegend(entries) {
  const list = element("ul", undefined, "legend");
  for (const [kind, text] of entries) {
    const entry = element("li");
    entry.append(element("span", undefined, `sample ${kind}`), text);
    list.append(entry);
  }
  return list;
}
