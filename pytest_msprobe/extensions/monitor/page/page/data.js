/* What the page holds. A bin is a group of consecutive watched steps. */

const BINS = page.starts.length;

// Tensors are in the order of computing; each has its findings by rank. Curves are base64 of float32, lows then highs.
page.tensors.forEach((tensor, at) => Object.assign(tensor, { at, found: {} }));
for (const one of [...page.series, ...page.findings]) one.tensor = page.tensors[one.tensor];
for (const one of page.findings) if (one.tensor) (one.tensor.found[one.rank] ??= []).push(one);
const findingsOf = (series) => series.tensor.found[series.rank] ?? [];

function bytes(text) {
  return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
}

function curve(series, side) {
  series.curves ??= {};
  if (series[side] && !series.curves[side]) {
    const both = new Float32Array(bytes(series[side]).buffer);
    series.curves[side] = { low: both.subarray(0, BINS), high: both.subarray(BINS) };
  }
  return series.curves[side];
}

function gapOf(level) {
  if (level === page.gap.notFinite) return Infinity;
  const [first, last] = page.gap.scale;
  if (level < first) return level === page.gap.equal ? 0 : NaN;
  return page.gap.least * (page.gap.greatest / page.gap.least) ** ((level - first) / (last - first));
}

function lastStep(bin) {
  return bin + 1 < BINS ? page.starts[bin + 1] - 1 : page.last;
}

function middleOf(bin) {
  return page.binned ? (page.starts[bin] + lastStep(bin)) / 2 : page.starts[bin];
}

function binText(bin) {
  const first = page.starts[bin], last = lastStep(bin), time = page.times ? ` (${timeText(page.times[bin])})` : "";
  return `${page.binned && last > first ? `steps ${first} to ${last}` : `step ${first}`}${time}`;
}

function timeText(time) {
  return new Date(time * 1000).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
}

function binOf(step) {
  return Math.max(0, page.starts.findLastIndex((start) => start <= step));
}

function rangeText(found, bin) {
  if (!found) return "";
  const low = found.low[bin], high = found.high[bin];
  if (low > high) return "no value";
  return low === high || Number.isNaN(low) ? shortText(low) : `${shortText(low)} to ${shortText(high)}`;
}

const shortText = (value) => numberText(+value.toPrecision(5));

const rankOf = (series) => page.ranks[series.rank];

function itemOf({ tensor, statistic }) {
  return `${tensor.task}/${tensorText(tensor)}/${statistic}`;
}

// The first virtual pipeline stage and the first micro step go without saying.
function tensorText({ vpp_stage: stage, name, micro_step: micro }) {
  return `${stage ? `vpp${stage}:` : ""}${name}${micro ? `:micro${micro}` : ""}`;
}
