/* One record in full. */

function sheetOf(row) {
  const sheet = element("div"), details = page.details[row], outcome = word("outcome", row);
  const facts = factsList([
    ["result", [outcome, word("standard", row) && `by ${word("standard", row)}`].filter(Boolean).join(" "), outcome],
    ["why", word("reason", row)],
    ["error / allowed", severity(row) > 0 ? [marginOf(row), word("metric", row)].filter(Boolean).join(" of ") : ""],
    ["dtype", word("dtype", row)],
    ["judged", placeText(row)],
    ["seconds", columnsOf.seconds[row] || ""],
  ]);
  sheet.append(element("h2", columnsOf.name[row]), linkButton(fragmentOf(row)), facts);
  sheet.append(...commandsOf(row));
  sheet.append(...historySection(row));
  if (details) sheet.append(...parts(details));
  else if (isWrong(row)) sheet.append(element("p", "What it says in full is in the journal: the page keeps that of the worst records alone."));
  const others = inOtherRuns(row);
  if (others) sheet.append(element("h3", "The same record in other runs"), others);
  return sheet;
}

function parts(details) {
  const made = [element("pre", details.text)];
  for (const output of details.outputs) if (output.outcome !== "pass" || details.outputs.length < 4) made.push(...outputParts(output));
  for (const note of details.notes) made.push(element("pre", note));
  if (details.inputs.length) made.push(element("h3", "Inputs"), inputsTable(details.inputs));
  if (details.called.length) made.push(element("h3", "Called at, innermost first"), element("pre", details.called.join("\n")));
  return made;
}

function outputParts(output) {
  const shape = output.dtype ? ` ${output.dtype} (${output.shape.join(", ")})` : "";
  const made = [element("h3", `${output.path}${shape}`)];
  if (output.numbers.length) made.push(plainTable(["metric", "measured", "allowed"], output.numbers.map((cells) => cells.map((cell, place) => (place ? numberText(asNumber(cell)) : cell)))));
  if (!output.map) return made;
  made.push(element("p", "Where the error is: error / allowed of the worst element of each block", "soft"), errorMap(output.map), mapLegend());
  made.push(element("p", `Elements by error, each bar up to so many ${output.map.unit === "ULP" ? "units of the last place" : "units"}, of the target${output.map.baseline_histogram.length ? " and, in grey, of the baseline" : ""}`, "soft"), errorHistogram(output.map));
  if (output.map.worst.length) {
    const baseline = output.map.worst.some((one) => one.baseline);
    made.push(element("p", "The elements that err most", "soft"));
    made.push(plainTable(["index", "target", "golden", ...(baseline ? ["baseline"] : [])], output.map.worst.map((one) => [`[${one.index.join(", ")}]`, one.target, one.golden, ...(baseline ? [one.baseline] : [])])));
  }
  return made;
}

function inputsTable(inputs) {
  const cells = inputs.map(([path, dtype, shape, least, greatest, mean, rms, lost]) => [path, `${dtype} (${shape.join(", ")})`, ...[least, greatest, mean, rms].map((value) => numberText(asNumber(value))), lost || ""]);
  return plainTable(["input", "tensor", "least", "greatest", "mean", "rms", "NaN, inf"], cells);
}

function inOtherRuns(row) {
  const name = columnsOf.name[row], list = element("ul");
  for (let other = 0; other < rowCount; other++) {
    if (other === row || columnsOf.name[other] !== name) continue;
    const button = element("button", `${word("outcome", other)} ${severity(other) ? marginOf(other) : ""} ${placeText(other)}`, word("outcome", other)), item = element("li");
    button.addEventListener("click", () => open(other));
    item.append(button);
    list.append(item);
    if (list.children.length >= 50) break;
  }
  return list.children.length ? list : null;
}
