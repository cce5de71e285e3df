/* The scale of values: logarithmic where all are positive and span more than two decades, unless the reader chose. */

const LOW_QUANTILE = 0.05, SPAN = 100, FOOT_ROOM = 0.04;

/* What is below the foot is drawn at it: of positive values the
   foot is a low quantile, so that neither an explosion hides what was before it nor a stray tiny value flattens the rest.
   It is one of the `healthy` points too, of which there may be few before an explosion that lasts. */
function scaleOf(points, range = null, wanted = "auto", healthy = []) {
  let low = Infinity, high = -Infinity;
  for (const [, least, most] of points) {
    if (!Number.isFinite(least) || !Number.isFinite(most)) continue;
    low = Math.min(low, least);
    high = Math.max(high, most);
  }
  if (range) [low, high] = range;
  if (low > high) [low, high] = [0, 1];
  const foot = Math.min(footOf(points), footOf(healthy)), canBeLog = foot < Infinity && high > 0;
  if (canBeLog && (wanted === "log" || (wanted === "auto" && !range && low >= 0 && foot < high / SPAN))) return logarithmic(foot, high);
  if (low === high) [low, high] = [low - Math.max(Math.abs(low), 1e-30) * 0.05, high + Math.max(Math.abs(high), 1e-30) * 0.05];
  const room = range ? 0 : (high - low) * 0.05;
  [low, high] = [low - room, high + room];
  return { isLog: false, low, high };
}

function footOf(points) {
  const positive = points.map(([, least, most]) => (least > 0 ? least : most)).filter((value) => value > 0 && value < Infinity);
  return Float64Array.from(positive).sort()[Math.floor((positive.length - 1) * LOW_QUANTILE)] ?? Infinity;
}

// Whole decades; many of them begin where a curve along the foot is not taken for the axis.
function logarithmic(foot, high) {
  const from = Math.log10(foot), to = Math.log10(high), first = Math.floor(from - Math.max(0, (to - from) * FOOT_ROOM));
  const low = 10 ** first, top = 10 ** Math.max(Math.ceil(to), first + 1);
  return { isLog: true, low, high: top };
}
