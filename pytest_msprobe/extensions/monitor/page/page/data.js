/* What the page holds. A bin is a group of consecutive watched steps. */

const BINS = page.starts.length, TIME_STYLE = { dateStyle: "short", timeStyle: "medium" };

// Tensors are in the order of computing; each has its findings by rank. Curves are base64 of float32, lows then highs.
page.tensors.forEach((tensor, at) => Object.assign(tensor, { at, found: {} }));
for (const one of [...page.series, ...page.findings]) one.tensor = page.tensors[one.tensor];
for (const one of page.findings) if (one.tensor) (one.tensor.found[one.rank] ??= []).push(one);
const findingsOf = (series) => series.tensor.found[series.rank] ?? [];

const bytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));

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

/* Steps of a bin, and the bin of a step. */

const lastStep = (bin) => (bin + 1 < BINS ? page.starts[bin + 1] - 1 : page.last);
const middleOf = (bin) => (page.binned ? Math.floor((page.starts[bin] + lastStep(bin)) / 2) : page.starts[bin]);
const binOf = (step) => Math.max(0, page.starts.findLastIndex((start) => start <= step));

function binText(bin) {
  const first = page.starts[bin], last = lastStep(bin), isRange = page.binned && last > first;
  const time = page.times && new Date(page.times[bin] * 1000).toLocaleString(undefined, TIME_STYLE);
  return `${isRange ? `steps ${first} to ${last}` : `step ${first}`}${time ? ` (${time})` : ""}`;
}

const shortText = (value) => numberText(+value.toPrecision(5));

function rangeText(found, bin) {
  if (!found) return "";
  const low = found.low[bin], high = found.high[bin];
  if (low > high) return "no value";
  return low === high || Number.isNaN(low) ? shortText(low) : `${shortText(low)} to ${shortText(high)}`;
}

/* Names. The first virtual pipeline stage and the first micro step go without saying. */

const rankOf = (series) => page.ranks[series.rank];
const itemOf = ({ tensor, statistic }) => `${tensor.task}/${tensorText(tensor)}/${statistic}`;

function tensorText({ vpp_stage: stage, name, micro_step: micro }) {
  return `${stage ? `vpp${stage}:` : ""}${name}${micro ? `:micro${micro}` : ""}`;
}
