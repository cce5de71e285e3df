/* One plot of lines over steps or times, drawn by uPlot: dragging zooms the heat map and all plots, a click chooses a step. */

const MARK = 4, MOST_POWERS = 6, TIME_SPACE = 80;

class CurvePlot {
  /* `lines` may have a colour; `steps` are marked. A small plot has no labels but the ends of its scale, and is not
     followed by the pointer. */
  constructor(box, lines, { width, height, label, unit, steps, wanted, axis, range = null, isSmall = false }) {
    Object.assign(this, { lines, steps, isSmall, axis: AXES[axis], ends: endsInSight() });
    // The scale is that of what is in sight, and shows what was before the first finding.
    const points = pointsInSight(lines), first = Math.min(...steps);
    this.scale = scaleOf(points, range, wanted, steps.length ? points.filter(([step]) => step < first) : []);
    this.below = points.filter(([, low]) => this.scale.isLog && low < this.scale.low);
    this.notFinite = points.filter(([, low, high]) => !Number.isFinite(low) || !Number.isFinite(high));
    this.plot = new uPlot(this.#options(width, height, unit), this.#data(), box);
    if (!isSmall) this.plot.over.addEventListener("mousemove", (event) => onStep(this.#binAt(event.offsetX), this));
    filled(box, [], { role: "img", "aria-label": label });
  }

  #binAt(x) {
    return binOf(this.axis.stepAt(this.plot.posToVal(x, "x")));
  }

  #options(width, height, unit) {
    const { scale, isSmall, axis: { isTime, place } } = this, [first, last] = this.ends.map(place);
    return {
      width, height, legend: { show: false }, ...(isSmall ? { padding: [8, 6, 8, 0] } : {}),
      scales: {
        x: { time: isTime, range: [first, last > first ? last : first + 1] },
        y: { distr: scale.isLog ? 3 : 1, range: [scale.low, scale.high] },
      },
      axes: [this.#along(last - first), this.#across(unit)],
      series: [{}, ...this.lines.flatMap((line) => this.#series(line))],
      bands: this.#bands(),
      cursor: { show: !isSmall, drag: { x: true, y: false, setScale: false }, points: { show: false }, y: false },
      hooks: { setSelect: [(plot) => this.#zoom(plot)], draw: [(plot) => this.#marks(plot)] },
    };
  }

  #along(span) {
    if (this.isSmall) return { show: false };
    if (!this.axis.isTime) return plotAxis("step", 22, { incrs: WHOLE_STEPS });
    return plotAxis("time", 22, { space: TIME_SPACE, values: (_, times) => times.map((time) => timeMark(time, span)) });
  }

  #across(unit) {
    const { low, high, isLog } = this.scale;
    const places = this.isSmall ? [low, high] : isLog ? powersBetween(low, high) : null;
    const given = places ? { splits: () => places, filter: (_, ticks) => ticks } : {};
    const textOf = (value) => (value === null ? "" : shortText(this.isSmall ? +value.toPrecision(3) : value));
    return plotAxis(unit || undefined, 58, { ...given, values: (_, ticks) => ticks.map(textOf) });
  }

  #colourOf(line) {
    return line.colour ?? themeColour({ gap: "fail", allowed: "soft" }[line.className] ?? line.className);
  }

  #series(line) {
    const one = {
      stroke: this.#colourOf(line), width: line.className === "golden" ? 2.5 : 1.4, alpha: line.isFaint ? 0.3 : 1,
      dash: line.className === "allowed" ? [4, 3] : undefined, points: { show: line.x.length < 3 },
    };
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
    for (const step of this.steps.filter((one) => one >= this.ends[0] && one <= this.ends[1])) {
      strokeThrough(pen, [[x(step), top], [x(step), top + height]], themeColour("fail"), [3 * ratio, 3 * ratio]);
    }
    pen.fillStyle = themeColour("not-finite");
    pen.font = `bold ${11 * ratio}px system-ui, sans-serif`;
    pen.textAlign = "center";
    for (const [step] of this.notFinite) pen.fillText("×", x(step), top + 9 * ratio);
    for (const [step] of this.below) pointDown(pen, x(step), top + height, MARK * ratio, themeColour("soft"));
    pen.restore();
  }
}

function powersBetween(low, high) {
  const first = Math.round(Math.log10(low)), last = Math.round(Math.log10(high)), every = Math.ceil((last - first) / MOST_POWERS);
  return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, at) => 10 ** (first + at * every));
}

function middleOf(bin) {
  return page.binned ? (page.starts[bin] + lastStep(bin)) / 2 : page.starts[bin];
}
