/* Layers of which modules were fed golden inputs: what the program passed them, and what is wrong by itself. */

// A layer: [name, error of passed inputs, error on golden inputs, what is wrong first, its call]
const LAYER = { name: 0, passed: 1, output: 2, first: 3, call: 4 };
let fedTable = null;

function drawFed() {
  fedTable ??= makeTable(byId("fed-scroller"), page.fed, [
    { title: "Layer", name: true, of: (layer) => layer[LAYER.name] },
    { title: "Error of passed inputs", number: true, of: (layer) => asNumber(layer[LAYER.passed]) },
    { title: "Error on golden inputs", number: true, of: (layer) => asNumber(layer[LAYER.output]) },
    {
      title: "Wrong by itself first", grow: true, of: (layer) => layer[LAYER.first],
      look: (layer) => (layer[LAYER.first] ? "fail" : ""),
    },
  ], { label: "Fed layers", open: ({ [LAYER.call]: call }) => { if (call !== null) lookAt(page.calls[call]); } });
}
