/* Numbers of many calls along one axis, on a logarithmic scale, by uPlot. Zero has a band of its own; infinity and what
   could not be measured share one. */

const PLOT_FONT = "11px system-ui, sans-serif", NEAR = 12, LEAST_DECADES = 2, BAND = 28, AROUND = 52;
const WHOLE_STEPS = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat();
const isFinitePositive = (value) => value > 0 && value < Infinity;

/* What axes of all plots look like. */
function plotAxis(label, size, more) {
  const line = { stroke: themeColour("line"), width: 1 };
  const fonts = { stroke: themeColour("soft"), font: PLOT_FONT, labelFont: PLOT_FONT, labelSize: 16 };
  return { ...fonts, ticks: { show: false }, grid: line, label, size, ...more };
}

class LogPlot {
  /* `titles` are those of both axes, `limits` lines across: their text and value, and whether what lies above fails or
     warns. `choose` is called with a point; `isLine` joins the points, `placeText` names places, `labelOf` points. */
  constructor(box, { titles, limits, choose, isLine = false, placeText = String, labelOf = ({ label }) => label }) {
    Object.assign(this, { box, titles, limits, isLine, placeText, labelOf, points: [], drawn: [] });
    this.tip = element("div", [], "tip");
    this.ring = element("div", [], "ring");
    const drawAgain = () => this.draw(this.points, this.chosen);
    window.addEventListener("themechange", drawAgain);
    onSize(box, () => {
      const { width, height } = this.plot ?? {};
      if (width !== box.clientWidth || height !== box.clientHeight) drawAgain();
    });
    box.addEventListener("mousemove", (event) => this.#tipOf(this.#nearest(event)));
    box.addEventListener("mouseleave", () => this.#tipOf(null));
    box.addEventListener("click", (event) => {
      const found = this.#nearest(event);
      if (found) choose(found.point);
    });
  }

  /* Points have a `place` along the axis, a `value`, number or null, an `outcome` that colours them, a `label`, perhaps
     a `limit` of their own, and stand out where `isMarked`. */
  draw(points, chosen) {
    Object.assign(this, { points, chosen });
    if (!this.box.clientWidth) return;
    this.plot?.destroy();
    this.#measure();
    this.plot = new uPlot({
      width: this.box.clientWidth, height: this.box.clientHeight, legend: { show: false }, cursor: { show: false },
      scales: { x: { time: false, range: this.ends }, y: { range: [this.foot, this.top] } },
      axes: [this.#places(), this.#powers()], series: [{}, { show: false }], padding: [16, 10, 0, 0],
      hooks: { draw: [(plot) => { this.#marks(plot); this.choose(this.chosen); }] },
    }, [[0], [0]], this.box);
    this.box.append(this.ring, this.tip);
    this.#tipOf(null);
  }

  /* Ring a point; the others stay as they were drawn. */
  choose(point) {
    this.chosen = point;
    const found = point && this.drawn.find((one) => one.point === point);
    this.ring.hidden = !found;
    if (found) Object.assign(this.ring.style, { left: `${found.x}px`, top: `${found.y}px` });
  }

  /* The first and last place, the lowest and highest power of ten, and how far the axis goes with the bands. */
  #measure() {
    const places = this.points.map(({ place }) => place).sort((a, b) => a - b);
    this.ends = [(places[0] ?? 0) - 0.5, (places.at(-1) ?? 0) + 0.5];
    const values = this.points.map(({ value }) => value);
    const limits = [...this.limits.map(({ value }) => value), ...this.points.map(({ limit }) => limit)];
    const powers = [...values, ...limits].filter(isFinitePositive).map(Math.log10);
    this.lowest = Math.floor(powers.reduce((a, b) => Math.min(a, b), 0));
    const most = powers.reduce((a, b) => Math.max(a, b), this.lowest);
    this.highest = Math.max(this.lowest + LEAST_DECADES, Math.ceil(most));
    const bands = [0, Infinity].map((value) => (values.includes(value) ? BAND : 0));
    // How many pixels the powers have, and how many powers a pixel is.
    this.room = Math.max(1, this.box.clientHeight - AROUND - bands[0] - bands[1]);
    const each = (this.highest - this.lowest) / this.room;
    [this.foot, this.top] = [this.lowest - bands[0] * each, this.highest + bands[1] * each];
  }

  /* Where a value is on the axis. */
  #level(value) {
    if (value === 0) return (this.lowest + this.foot) / 2;
    return value === Infinity ? (this.highest + this.top) / 2 : Math.log10(value);
  }

  #places() {
    const [first, last] = this.ends, text = (place) => (place > first && place < last ? this.placeText(place) : "");
    const values = (_, places) => places.map(text);
    const base = { show: true, stroke: themeColour("soft"), width: 1 };
    return plotAxis(this.titles.x, 20, { incrs: WHOLE_STEPS, space: 60, values, grid: { show: false }, border: base });
  }

  #powers() {
    const every = Math.ceil((this.highest - this.lowest) / Math.max(1, Math.floor(this.room / 20)));
    const powers = [];
    for (let power = this.lowest; power <= this.highest; power += every) powers.push([power, numberText(10 ** power)]);
    if (this.foot < this.lowest) powers.unshift([this.#level(0), "0"]);
    if (this.top > this.highest) powers.push([this.#level(Infinity), "inf, n/a"]);
    const splits = () => powers.map(([at]) => at), values = () => powers.map(([, text]) => text);
    return plotAxis(this.titles.y, 54, { splits, values });
  }

  #marks(plot) {
    const pen = plot.ctx, ratio = devicePixelRatio, x = (place) => plot.valToPos(place, "x", true) / ratio;
    const y = (value) => plot.valToPos(this.#level(value), "y", true) / ratio;
    const ends = this.ends.map(x), half = (x(1) - x(0)) / 2;
    const placed = this.points.map((point) => ({ point, x: x(point.place) }));
    const isMeasured = ({ point: { value } }) => typeof value === "number" && !Number.isNaN(value);
    this.drawn = placed.filter(isMeasured).map((one) => ({ ...one, y: y(one.point.value) }));
    pen.save();
    pen.scale(ratio, ratio);
    if (this.isLine) strokeThrough(pen, this.drawn.map((one) => [one.x, one.y]), themeColour("soft"));
    for (const { value, outcome } of this.limits) {
      strokeThrough(pen, ends.map((end) => [end, y(value)]), themeColour(outcome), [5, 4]);
    }
    for (const { point, x: at } of placed.filter(({ point: { limit } }) => isFinitePositive(limit))) {
      strokeThrough(pen, [[at - half, y(point.limit)], [at + half, y(point.limit)]], themeColour("fail"), [5, 4]);
    }
    // Marked points are drawn last, over the others and over texts; of many on one spot only one is drawn.
    const spotOf = (one) => (LOOKS.indexOf(one.point.outcome) * 1e4 + Math.round(one.y)) * 1e4 + Math.round(one.x);
    const spots = [...new Map(this.drawn.map((one) => [spotOf(one), one])).values()];
    const marked = spots.filter(({ point }) => point.isMarked), others = spots.filter(({ point }) => !point.isMarked);
    for (const one of others) square(pen, one, this.isLine ? 7 : 3);
    for (const { value, text, outcome } of this.limits) limitText(pen, text, y(value) - 4, outcome, ends[1]);
    for (const one of marked) square(pen, one, 7);
    pen.restore();
  }

  #nearest(event) {
    const box = this.box.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, distance = NEAR ** 2;
    for (const found of this.drawn) {
      const away = (found.x - x) ** 2 + (found.y - y) ** 2;
      if (away < distance) [best, distance] = [found, away];
    }
    return best;
  }

  #tipOf(found) {
    this.tip.hidden = !found;
    if (!found) return;
    const { point, x, y } = found, width = this.box.clientWidth, isRight = x > width / 2;
    const limit = isFinitePositive(point.limit) ? `, limit ${numberText(point.limit)}` : "";
    this.tip.textContent = `${this.labelOf(point)}: ${numberText(point.value)}${limit}`;
    const left = isRight ? "auto" : `${x + 10}px`, right = isRight ? `${width - x + 10}px` : "auto";
    Object.assign(this.tip.style, { left, right, top: `${Math.max(0, y - 12)}px` });
  }
}

function square(pen, { point, x, y }, size) {
  pen.fillStyle = themeColour(point.outcome);
  pen.fillRect(x - size / 2, y - size / 2, size, size);
}

/* The text of a limit, at the right end of its line. */
function limitText(pen, text, base, outcome, last) {
  Object.assign(pen, { font: PLOT_FONT, textAlign: "left" });
  const left = last - pen.measureText(text).width;
  pen.fillStyle = themeColour("back");
  pen.fillRect(left - 2, base - 10, last - left + 4, 12);
  pen.fillStyle = themeColour(outcome);
  pen.fillText(text, left, base);
}

/* What the marks of a plot mean: `words` of those outcomes that points have, and of marked points and limits. */
function plotLegend({ points, limits, words }) {
  const met = new Set(points.map(({ outcome }) => outcome));
  if (points.some((point) => point.isMarked)) met.add("marked");
  if (limits.length || points.some((point) => isFinitePositive(point.limit))) met.add("limit");
  const entries = Object.entries(words).filter(([kind]) => met.has(kind));
  return listOf(entries.map(([kind, text]) => [element("span", [], `sample ${kind}`), text]), "legend");
}
