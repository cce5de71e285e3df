/* The lines that are drawn of a series: both runs, and how far they are apart. A line has its steps as `x`, the `low`
   and `high` values at them, and a class; least and greatest of a bin are a band. */

function linesOf(series) {
  const exact = series.exact;
  return ["golden", "target"].flatMap((side) => {
    if (exact?.[side]) return [(exact[side].line ??= exactLine(side, exact[side]))];
    return series[side] ? [binnedLine(side, curve(series, side))] : [];
  });
}

function exactLine(className, [steps, values]) {
  const [x, low] = [steps, values].map((text) => [...new Float64Array(bytes(text).buffer)]);
  return { className, x, low, high: low, isBand: false };
}

function binnedLine(className, { low, high }) {
  const bins = [...low.keys()].filter((bin) => !(low[bin] > high[bin])), of = (list) => bins.map((bin) => list[bin]);
  const isBand = bins.some((bin) => low[bin] !== high[bin] && Number.isFinite(low[bin]));
  return { className, x: bins.map(middleOf), low: of(low), high: of(high), isBand };
}

// How far apart the runs are, step by step with what was allowed where something was found.
function gapLines(series) {
  const compared = series.compared;
  if (compared) return ["allowed", "gap"].map((name) => (compared[name].line ??= exactLine(name, compared[name])));
  const gaps = Float64Array.from(levelsOfGap(series), gapOf);
  const where = (other) => gaps.map((gap) => (gap >= 0 ? gap : other));
  return [binnedLine("gap", { low: where(Infinity), high: where(-Infinity) })];
}

const levelsOfGap = (series) => (series.gaps ??= series.gap ? bytes(series.gap) : new Uint8Array(BINS));

/* An exponential moving average, without the pull towards zero of its first steps. */
function smoothed({ className, x, low, high }, weight) {
  let sum = 0, share = 0;
  const kept = [...x.keys()].filter((at) => Number.isFinite(low[at] + high[at]));
  const values = kept.map((at) => {
    sum = weight * sum + ((1 - weight) * (low[at] + high[at])) / 2;
    share = weight * share + (1 - weight);
    return sum / share;
  });
  return { className, x: kept.map((at) => x[at]), low: values, high: values, isBand: false };
}

/* The points of lines that are in sight, as steps with their low and high values. */
function pointsInSight(lines) {
  const [first, last] = endsInSight();
  const points = lines.flatMap(({ x, low, high }) => x.map((step, at) => [step, low[at], high[at]]));
  return points.filter(([step]) => step >= first && step <= last);
}

function endsInSight() {
  const first = page.starts[heatMap.from];
  return [first, Math.max(first + 1, lastStep(heatMap.to - 1))];
}

/* The least and the greatest value of points, where they have any. */
function rangeOf(points) {
  const values = points.flatMap(([, low, high]) => [low, high]).filter(Number.isFinite);
  const ends = [Math.min, Math.max].map((most) => values.reduce((a, b) => most(a, b), values[0]));
  return values.length ? ends : null;
}

/* The time at which a step ended. It is known of the first step of each bin and of the last step of all; those between
   follow a straight line. */
function timeOf(step) {
  const bin = binOf(step), first = page.starts[bin], next = page.starts[bin + 1] ?? page.last;
  const [began, ended] = [page.times[bin], page.times[bin + 1]];
  return next > first ? began + ((ended - began) * (step - first)) / (next - first) : began;
}
