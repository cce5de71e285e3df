/* The graph as the other view of the table. It is made when it is first looked at. */

let graphView = null;
// By the number of a call: the graph that shows it, the run, and the node; and its rows.
const inGraphs = new Map(), rowsOfCalls = Map.groupBy(page.rows, ([call]) => call);
page.graphs.forEach((graph, place) => {
  for (const side of ["golden", "target"]) {
    graph[side].calls.forEach((call, node) => inGraphs.set(call, [place, side, node]));
  }
});

const views = makeTabs(byId("views"), [
  { id: "table-view", title: "Table", open: () => { plot(); table.draw(); } },
  ...(page.tokens ? [{ id: "tokens", title: "Tokens", open: drawTokens }] : []),
  ...(page.fed.length ? [{ id: "fed", title: "Fed layers", open: drawFed }] : []),
  ...(page.pairs.length > 1 ? [{ id: "map", title: "Steps and ranks", open: drawMap }] : []),
  ...(page.graphs.length ? [{ id: "graph", title: "Graph", open: openGraph }] : []),
]);
byId("views").hidden = page.pairs.length < 2 && !page.graphs.length && !page.tokens && !page.fed.length;

function openGraph() {
  graphView ??= new GraphView(byId("graph"), page.graphs, { describe: describeInGraph, brief: briefInGraph });
  graphView.draw();
  graphView.outline.box.focus();
}

function showInGraph(call) {
  views.show("graph");
  graphView.show(...inGraphs.get(call));
}

/* Where a call is looked at: in the graph, if that is open, or in the table. */
function lookAt(call) {
  const number = page.calls.indexOf(call);
  if (!byId("graph").hidden && inGraphs.has(number)) showInGraph(number);
  else {
    views.show("table-view");
    goTo(call);
  }
}

function describeInGraph(place, side, node) {
  const number = page.graphs[place][side].calls[node], call = page.calls[number], rows = rowsOfCalls.get(number) ?? [];
  if (!call) return {};
  const messages = rows.filter((row) => row[ROW.messages]).map((row) => `${placeOf(row, call)}: ${row[ROW.messages]}`);
  const about = (row) => [row[ROW.outcome], row[ROW.dtype], row[ROW.shape], errorText(row)].filter(Boolean).join(", ");
  return {
    failure: [call[CALL.reason], ...messages].filter(Boolean).join("\n"),
    facts: rows.map((row) => [placeOf(row, call), about(row)]),
    stack: page.stacks[call[CALL.stack]],
    actions: [["numbers in the table", () => { views.show("table-view"); goTo(call); }]],
    commands: commandsOf(call),
  };
}

function errorText(row) {
  const error = numberText(row[ROW.metrics][0]);
  return error === "" || error === "0" ? "" : `error ${error}`;
}

function briefInGraph(place, side, node) {
  const number = page.graphs[place][side].calls[node], call = page.calls[number];
  const row = (rowsOfCalls.get(number) ?? []).find((one) => placeOf(one, call).startsWith("output"));
  return row ? `${row[ROW.dtype]} ${row[ROW.shape]}` : "";
}

/* Where in its call a value is: output.0. */
function placeOf(row, call) {
  const name = row[ROW.name], names = [call[CALL.record], call[CALL.golden]];
  const record = names.find((one) => one && name.startsWith(`${one}.`));
  return record ? name.slice(record.length + 1) : name;
}
