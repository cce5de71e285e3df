/* The lines that are drawn of a series: both runs, and how far they are apart. */

// A line: {className, low, high} by bin, or {className, steps, values}, exact.
function linesOf(series) {
  const exact = series[SERIES.exact];
  return ["golden", "target"].flatMap((side) => {
    const given = SERIES[side];
    if (exact?.[side]) return [(exact[side].line ??= exactLine(side, exact[side]))];
    return series[given] ? [{ className: side, ...curve(series, given) }] : [];
  });
}

function exactLine(className, [steps, values]) {
  return { className, steps: new Float64Array(bytes(steps).buffer), values: new Float64Array(bytes(values).buffer) };
}

// How far apart the runs are, step by step with what was allowed where something was found.
function gapLines(series) {
  const compared = series[SERIES.compared];
  return compared ? ["allowed", "gap"].map((name) => (compared[name].line ??= exactLine(name, compared[name]))) : [gapLine(series)];
}

function gapLine(series) {
  const found = Float64Array.from(levelsOfGap(series), gapOf);
  const low = found.map((gap) => (Number.isNaN(gap) ? Infinity : gap)), high = found.map((gap) => (Number.isNaN(gap) ? -Infinity : gap));
  return { className: "gap", low, high };
}

function levelsOfGap(series) {
  return (series.gaps ??= bytes(series[SERIES.gap]));
}

function* pointsOf(line) {
  if (line.steps) {
    for (let at = 0; at < line.steps.length; at++) {
      const place = placeOf(line.steps[at]);
      if (inSight(place)) yield [place, line.values[at], line.values[at]];
    }
  } else {
    for (let bin = state.from; bin < state.to; bin++) if (!(line.low[bin] > line.high[bin])) yield [bin + 0.5, line.low[bin], line.high[bin]];
  }
}
