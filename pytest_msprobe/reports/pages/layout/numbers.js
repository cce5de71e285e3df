function numberText(value) {
  return rounded(value, 7);
}

/* A number in at most so many digits; what is none is given back. */
function rounded(value, digits) {
  if (typeof value !== "number") return value ?? "";
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "inf");
  const size = Math.abs(value), isFar = value !== 0 && (size < 1e-3 || size >= 1e6);
  if (!isFar) return String(+value.toPrecision(digits));
  return value.toExponential(Math.min(5, digits) - 1).replace(/\.?0+e/, "e").replace("+", "");
}

/* An error as a share of its limit, with "<= " where it is an upper bound. */
function marginText(margin, isAtMost) {
  return `${isAtMost ? "<= " : ""}${rounded(margin, 4)}`;
}

function asNumber(value) {
  return value === "inf" ? Infinity : value === "-inf" ? -Infinity : value;
}

/* A count, in groups of three digits from five on. */
function grouped(count) {
  return count < 10_000 ? String(count) : String(count).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function plural(count, noun, nouns = `${noun}s`) {
  return `${grouped(count)} ${count === 1 ? noun : nouns}`;
}
