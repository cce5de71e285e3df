/* Layers of which modules were fed golden inputs: what the program passed them, and what is wrong by itself. */

// The first message of an input that was replaced; a layer is an item of the outermost list that a module is in.
const FED = "fed from ", LAYER = /^(?:[^.\d][^.]*\.)+?\d+(?=\.|$)/, RECORD = /^(?:Module|Cell)\.(.+)\.[^.]+\.forward\.\d+$/;
const hasFed = page.rows.some((row) => row[6].startsWith(FED));
let fedTable = null;

function drawFed() {
  if (!fedTable) makeFed();
  fedTable.draw();
}

function makeFed() {
  fedTable = makeTable(byId("fed-scroller"), [
    { title: "Layer", width: 240, of: (layer) => layer.name },
    { title: "Error of passed inputs", width: 220, number: true, of: (layer) => layer.passed },
    { title: "Error on golden inputs", width: 240, number: true, of: (layer) => layer.output },
    { title: "Wrong by itself first", width: 260, grow: true, of: (layer) => layer.first, look: (layer) => (layer.first ? "fail" : "") },
  ], { open: (layer) => { if (layer?.wrong) { views.show("table-view"); goToRow(layer.wrong); } }, label: "Fed layers", name: "fed" });
  fedTable.show(fedLayers());
}

function fedLayers() {
  const layers = new Map(), fed = new Set(page.rows.filter((row) => row[ROW.messages].startsWith(FED)).map((row) => row[ROW.call]));
  for (const row of page.rows) {
    if (!fed.has(row[ROW.call])) continue;
    const call = page.calls[row[ROW.call]], path = RECORD.exec(call[CALL.record])?.[1] ?? call[CALL.record];
    const name = LAYER.exec(path)?.[0] ?? path;
    if (!layers.has(name)) layers.set(name, { name, passed: null, output: null, first: "", of: "", wrong: null });
    noteRow(layers.get(name), row, path, call);
  }
  return [...layers.values()];
}

function noteRow(layer, row, path, call) {
  const isReplaced = row[ROW.messages].startsWith(FED), isOutput = row[ROW.name].includes(".output."), error = asNumber(row[ROW.metrics][0]);
  const differs = SEVERITY[row[ROW.outcome]] > SEVERITY.pass;
  // The layer's own inputs where it was fed itself, else those of the first fed module in it.
  if (isReplaced && (layer.of === "" || layer.of === path || path === layer.name)) {
    layer.passed = layer.of === path ? greater(layer.passed, error) : error;
    layer.of = path;
  }
  if (isOutput) layer.output = greater(layer.output, error);
  if (layer.wrong || !differs || !(isReplaced || (isOutput && call[CALL.cause] === "culprit"))) return;
  layer.first = isReplaced ? `the code before ${path}` : path;
  layer.wrong = row;
}

function greater(a, b) {
  return a === null || !(b <= a) && b !== null ? b : a;
}
