function numberText(value) {
  if (typeof value !== "number") return value ?? "";
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "inf");
  const size = Math.abs(value);
  return value !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(4) : String(+value.toPrecision(7));
}

function asNumber(value) {
  return value === "inf" ? Infinity : value === "-inf" ? -Infinity : value;
}

/* A count in groups of three digits. */
function grouped(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function plural(count, noun, nouns = `${noun}s`) {
  return `${count} ${count === 1 ? noun : nouns}`;
}
