/* The scale of values: logarithmic where all are positive and span more than two decades, unless the reader chose. */

const LOW_QUANTILE = 0.05, SPAN = 100;

/* `at` places a value from 0 at the foot to 1 at the top. What is below the foot is drawn at it: of positive values the
   foot is a low quantile, so that neither an explosion hides what was before it nor a stray tiny value flattens the rest. */
function scaleOf(points, range = null, wanted = "auto") {
  let low = Infinity, high = -Infinity;
  const positive = [];
  for (const [, least, most] of points) {
    if (!Number.isFinite(least) || !Number.isFinite(most)) continue;
    low = Math.min(low, least);
    high = Math.max(high, most);
    if (least > 0) positive.push(least);
    else if (most > 0) positive.push(most);
  }
  if (range) [low, high] = range;
  if (low > high) [low, high] = [0, 1];
  const foot = footOf(positive), canBeLog = positive.length > 0 && high > 0;
  if (canBeLog && (wanted === "log" || (wanted === "auto" && !range && low >= 0 && foot < high / SPAN))) return logarithmic(foot, high);
  if (low === high) [low, high] = [low - Math.max(Math.abs(low), 1e-30) * 0.05, high + Math.max(Math.abs(high), 1e-30) * 0.05];
  const room = range ? 0 : (high - low) * 0.05;
  [low, high] = [low - room, high + room];
  return { isLog: false, low, high, ends: [low, high], at: (value) => (value - low) / (high - low) };
}

function footOf(positive) {
  if (!positive.length) return 0;
  const sorted = Float64Array.from(positive).sort();
  return sorted[Math.floor((sorted.length - 1) * LOW_QUANTILE)];
}

function logarithmic(foot, high) {
  const low = 10 ** Math.floor(Math.log10(foot)), top = 10 ** Math.max(Math.ceil(Math.log10(high)), Math.floor(Math.log10(foot)) + 1);
  return { isLog: true, low, high: top, ends: [low, top], at: (value) => Math.log(value / low) / Math.log(top / low) };
}
