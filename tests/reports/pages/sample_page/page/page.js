showHeader(page.title, "two rows on a CPU", ["one note"]);
const table = makeTable(byId("scroller"), page.rows, [
  { title: "Result", of: (row) => row.outcome, look: (row) => row.outcome },
  { title: "Why", of: (row) => row.why, grow: true },
  { title: "Margin", number: true, of: (row) => row.margin },
], { label: "Rows", open: (row) => byId("details").replaceChildren(element("h2", row.why), factsList([["result", row.outcome, row.outcome]]), linkButton(row.why)) });
makeTabs(byId("views"), [{ id: "first-view", title: "First", open: () => table.draw() }, { id: "second-view", title: "Second" }]).show("first-view");
table.show(page.rows);
