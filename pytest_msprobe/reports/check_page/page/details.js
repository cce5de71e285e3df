/* One record in full. */

const MOST_OTHERS = 50;

function sheetOf(row) {
  const details = page.details[row], others = inOtherRuns(row);
  const lacks = "What it says in full is in the journal: the page keeps that of the worst records alone.";
  return [
    table.sheets.facts(row), ...commandsOf(row), ...historySection(row),
    ...(details ? parts(details) : isWrong(row) ? [element("p", lacks)] : []),
    ...(others.length ? [element("h3", "The same record in other runs"), listOf(others)] : []),
  ];
}

function parts({ text, outputs, notes, inputs, called }) {
  const shown = outputs.filter((output) => output.outcome !== "pass" || outputs.length < 4);
  return [
    element("pre", text), ...shown.flatMap(outputParts), ...notes.map((note) => element("pre", note)),
    ...(inputs.length ? [element("h3", "Inputs"), inputsTable(inputs)] : []),
    ...titledTexts([["Called at, innermost first", called.join("\n")]]),
  ];
}

function outputParts({ path, dtype, shape, numbers, map }) {
  const made = [element("h3", dtype ? `${path} ${dtype} (${shape.join(", ")})` : path)];
  const lines = numbers.map(([name, ...cells]) => [name, ...cells.map(asNumber).map(numberText)]);
  if (lines.length) made.push(plainTable(["metric", "measured", "allowed"], lines));
  if (!map) return made;
  const unit = map.unit === "ULP" ? "units of the last place" : "units";
  const hasBaseline = map.worst.some((one) => one.baseline);
  const whose = `of the target${map.baseline_histogram.length ? " and, in grey, of the baseline" : ""}`;
  const meaning = "Where the error is: error / allowed of the worst element of each block";
  made.push(element("p", meaning, "soft"), ...errorMap(map));
  made.push(element("p", `Elements by error, each bar up to so many ${unit}, ${whose}`, "soft"), errorHistogram(map));
  if (!map.worst.length) return made;
  const sides = ["target", "golden", ...(hasBaseline ? ["baseline"] : [])];
  const worst = map.worst.map((one) => [`[${one.index.join(", ")}]`, ...sides.map((side) => one[side])]);
  return [...made, element("p", "The elements that err most", "soft"), plainTable(["index", ...sides], worst)];
}

function inputsTable(inputs) {
  const lines = inputs.map(([path, dtype, shape, ...numbers]) => {
    const lost = numbers.pop();
    return [path, `${dtype} (${shape.join(", ")})`, ...numbers.map(asNumber).map(numberText), lost || ""];
  });
  return plainTable(["input", "tensor", "least", "greatest", "mean", "rms", "NaN, inf"], lines);
}

function inOtherRuns(row) {
  const others = allRows.filter((other) => other !== row && columnsOf.name[other] === columnsOf.name[row]);
  return others.slice(0, MOST_OTHERS).map((other) => {
    const outcome = word("outcome", other), margin = severity(other) ? marginOf(other) : "";
    return recordButton(other, `${outcome} ${margin} ${placeText(other)}`, outcome);
  });
}
