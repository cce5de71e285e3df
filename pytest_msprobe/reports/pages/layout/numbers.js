function numberText(value) {
  if (typeof value !== "number") return value ?? "";
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "inf");
  const size = Math.abs(value);
  const isShort = value === 0 || (size >= 1e-3 && size < 1e6);
  return isShort ? String(+value.toPrecision(7)) : (+value.toPrecision(5)).toExponential().replace("+", "");
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
