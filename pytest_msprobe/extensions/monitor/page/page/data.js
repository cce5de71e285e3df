/* What the page holds. A bin is a group of consecutive watched steps. */

// A tensor: [task, virtual pipeline stage, name, micro step or null], in the order of computing.
const TENSOR = { task: 0, stage: 1, name: 2, micro: 3 };
// A series: [rank, tensor, statistic, target, golden, gap, exact, compared]; curves are base64 of float32, lows then highs.
const SERIES = { rank: 0, tensor: 1, statistic: 2, target: 3, golden: 4, gap: 5, exact: 6, compared: 7 };
// A finding: [rank, tensor, statistic, step or null, outcome, rule, message]
const FINDING = { rank: 0, tensor: 1, statistic: 2, step: 3, outcome: 4, rule: 5, message: 6 };
// Where two runs are farthest apart: [series, step, words]
const WIDEST = { series: 0, step: 1, words: 2 };
const BINS = page.starts.length;

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

const tensorOf = (series) => page.tensors[series[SERIES.tensor]];
const rankOf = (series) => page.ranks[series[SERIES.rank]];

/* Whether a finding is of the tensor of a series, on its rank. */
function isSameTensor(finding, series) {
  return finding[FINDING.rank] === series[SERIES.rank] && finding[FINDING.tensor] === series[SERIES.tensor];
}

function itemOf(series) {
  const tensor = tensorOf(series);
  return `${tensor[TENSOR.task]}/${tensorText(tensor)}/${series[SERIES.statistic]}`;
}

// The first virtual pipeline stage and the first micro step go without saying.
function tensorText(tensor) {
  const stage = tensor[TENSOR.stage] ? `vpp${tensor[TENSOR.stage]}:` : "";
  return `${stage}${tensor[TENSOR.name]}${tensor[TENSOR.micro] ? `:micro${tensor[TENSOR.micro]}` : ""}`;
}
