/* One plot of lines over steps or times, drawn by uPlot: dragging zooms the heat map and all plots, a click chooses a step. */

const PLOT_FONT = "11px system-ui, sans-serif", MARK = 4, MOST_POWERS = 6, TIME_SPACE = 80;
const WHOLE_STEPS = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat();

class CurvePlot {
  /* `lines` have steps with their low and high values, a class or a colour, and may be smooth; `steps` are marked. */
  constructor(box, lines, { width, height, label, unit, steps, wanted, axis }) {
    Object.assign(this, { lines, steps, axis: AXES[axis] });
    this.ends = [page.starts[state.from], Math.max(page.starts[state.from] + 1, lastStep(state.to - 1))];
    // The scale is that of what is in sight, and shows what was before the first finding.
    const points = lines.flatMap((line) => line.x.map((step, at) => [step, line.low[at], line.high[at]])).filter(([step]) => this.#isSeen(step));
    const first = Math.min(...steps);
    this.scale = scaleOf(points, null, wanted, steps.length ? points.filter(([step]) => step < first) : []);
    this.below = points.filter(([, low]) => this.scale.isLog && low < this.scale.low);
    this.notFinite = points.filter(([, low, high]) => !Number.isFinite(low) || !Number.isFinite(high));
    this.plot = new uPlot(this.#options(width, height, unit), this.#data(), box);
    this.plot.over.addEventListener("mousemove", (event) => onStep(this.#binAt(event.offsetX), this));
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", label);
  }

  #binAt(x) {
    return binOf(this.axis.stepAt(this.plot.posToVal(x, "x")));
  }

  #isSeen(step) {
    return step >= this.ends[0] && step <= this.ends[1];
  }

  #options(width, height, unit) {
    const axis = { stroke: themeColour("soft"), font: PLOT_FONT, labelFont: PLOT_FONT, labelSize: 16, grid: { stroke: themeColour("line"), width: 1 }, ticks: { show: false } };
    const [first, last] = this.ends.map(this.axis.place), range = [first, last > first ? last : first + 1];
    const alongside = this.axis.isTime ? { label: "time", space: TIME_SPACE, values: (_, ticks) => ticks.map((time) => timeMark(time, last - first)) } : { label: "step", incrs: WHOLE_STEPS };
    return {
      width, height,
      scales: { x: { time: this.axis.isTime, range }, y: { distr: this.scale.isLog ? 3 : 1, range: [this.scale.low, this.scale.high] } },
      axes: [{ ...axis, size: 22, ...alongside }, { ...axis, size: 58, label: unit, ...(this.scale.isLog ? { splits: () => powersBetween(this.scale.low, this.scale.high), filter: (_, ticks) => ticks } : {}), values: (_, ticks) => ticks.map((value) => (value === null ? "" : shortText(value))) }],
      series: [{}, ...this.lines.flatMap((line) => this.#series(line))],
      bands: this.#bands(),
      cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false }, y: false },
      legend: { show: false },
      hooks: { setSelect: [(plot) => this.#zoom(plot)], draw: [(plot) => this.#marks(plot)] },
    };
  }

  #colourOf(line) {
    return line.colour ?? themeColour({ gap: "fail", allowed: "soft" }[line.className] ?? line.className);
  }

  #series(line) {
    const stroke = this.#colourOf(line), one = { stroke, width: line.className === "golden" ? 2.5 : 1.4, alpha: line.isFaint ? 0.3 : 1, dash: line.className === "allowed" ? [4, 3] : undefined, points: { show: line.x.length < 3 } };
    return line.isBand ? [one, one] : [one];
  }

  #bands() {
    const bands = [];
    let at = 1;
    for (const line of this.lines) {
      if (line.isBand) bands.push({ series: [at + 1, at], fill: `color-mix(in srgb, ${this.#colourOf(line)} 22%, transparent)` });
      at += line.isBand ? 2 : 1;
    }
    return bands;
  }

  // What is not finite leaves a gap.
  #data() {
    const held = (value) => (Number.isFinite(value) ? Math.max(value, this.scale.isLog ? this.scale.low : value) : null);
    const tables = this.lines.map(({ x, low, high, isBand }) => [x.map(this.axis.place), low.map(held), ...(isBand ? [high.map(held)] : [])]);
    return tables.length ? uPlot.join(tables) : [[]];
  }

  #zoom(plot) {
    const { left, width } = plot.select;
    if (width < 6) return;
    const [from, to] = [left, left + width].map((x) => this.#binAt(x));
    // The plot is made anew by it.
    setTimeout(() => zoom(from, to));
  }

  moveTo(bin) {
    this.plot.setCursor({ left: this.plot.valToPos(this.axis.place(middleOf(bin)), "x"), top: 10 });
  }

  #marks(plot) {
    const pen = plot.ctx, { top, height } = plot.bbox, ratio = devicePixelRatio;
    const x = (step) => plot.valToPos(this.axis.place(step), "x", true);
    pen.save();
    pen.strokeStyle = themeColour("fail");
    pen.setLineDash([3 * ratio, 3 * ratio]);
    for (const step of this.steps.filter((one) => this.#isSeen(one))) {
      pen.beginPath();
      pen.moveTo(x(step), top);
      pen.lineTo(x(step), top + height);
      pen.stroke();
    }
    pen.setLineDash([]);
    pen.fillStyle = themeColour("not-finite");
    pen.font = `bold ${11 * ratio}px system-ui, sans-serif`;
    pen.textAlign = "center";
    for (const [step] of this.notFinite) pen.fillText("×", x(step), top + 9 * ratio);
    pen.fillStyle = themeColour("soft");
    for (const [step] of this.below) triangle(pen, x(step), top + height, MARK * ratio);
    pen.restore();
  }
}

function triangle(pen, x, y, size) {
  pen.beginPath();
  pen.moveTo(x - size, y - size);
  pen.lineTo(x + size, y - size);
  pen.lineTo(x, y);
  pen.fill();
}

function powersBetween(low, high) {
  const first = Math.round(Math.log10(low)), last = Math.round(Math.log10(high)), every = Math.ceil((last - first) / MOST_POWERS);
  return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, at) => 10 ** (first + at * every));
}

function middleOf(bin) {
  return page.binned ? (page.starts[bin] + lastStep(bin)) / 2 : page.starts[bin];
}
