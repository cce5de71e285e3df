/* The axis of curves: steps, or the times at which they ended, where the run holds them. */

// `place` says where a step is on the axis, `stepAt` which step is there.
const AXES = {
  step: { isTime: false, place: (step) => step, stepAt: (place) => Math.round(place) },
  time: { isTime: true, place: timeOf, stepAt: stepEndedAt },
};

// Times are known at the first step of each bin and at the last step of all; those between follow a straight line.
function timeOf(step) {
  const bin = binOf(step), first = page.starts[bin], next = endOf(bin);
  return next > first ? between(page.times[bin], page.times[bin + 1], (step - first) / (next - first)) : page.times[bin];
}

function stepEndedAt(time) {
  const bin = Math.max(0, Math.min(BINS - 1, page.times.findLastIndex((one) => one <= time))), first = page.starts[bin];
  const [began, ended] = [page.times[bin], page.times[bin + 1]];
  if (ended === began) return first;
  return Math.round(between(first, endOf(bin), Math.max(0, Math.min(1, (time - began) / (ended - began)))));
}

// Where the next bin begins, or the last step of all: the step of the bin's next known time.
function endOf(bin) {
  return bin + 1 < BINS ? page.starts[bin + 1] : page.last;
}

function between(low, high, share) {
  return low + (high - low) * share;
}

function timeText(time) {
  return page.times ? new Date(time * 1000).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" }) : "";
}

const DAY = 86_400;

// Marks of an axis that spans so many seconds.
function timeMark(time, span) {
  const parts = span > 2 * DAY ? { month: "short", day: "numeric", hour: "2-digit" } : span > 10 ? { hour: "2-digit", minute: "2-digit", second: "2-digit" } : { minute: "2-digit", second: "2-digit", fractionalSecondDigits: 2 };
  return new Date(time * 1000).toLocaleString(undefined, parts);
}
