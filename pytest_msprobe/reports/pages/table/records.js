/* The table of what a page is about, and what chooses its rows: a search, and a button for each outcome. */

/* Outcomes up to the gravest; what ended without a verdict is as grave as a failure. */
const LOOKS = ["skip", "pass", "warn", "fail"];
const gravityOf = (outcome) => (LOOKS.includes(outcome) ? LOOKS.indexOf(outcome) : LOOKS.length - 1);

/* `rows` are in their first order. `outcomeOf` says what came of a row, `textOf` what a search looks through besides
   columns, `isWanted` whether filters of the page show it and `forget` takes those back; `shown` outcomes are seen at
   first, all others where there is none.

   `open` shows a row, or what is seen where none is chosen: where it is left out, see rowSheets.
   `groups`: see makeGroups; they are of rows or of what `of` gives for a row.
   `plot`: see LogPlot; `pointOf` gives the point of a row, `points` are all of them, `words` say what their marks mean.
   Those of the rows that are seen are drawn, or all where it `keeps` them. */
function makeRecords(rows, columns, {
  outcomes, outcomeOf, textOf = () => [], noun, names = {}, shown = outcomes, isWanted = () => true, forget = () => {},
  open, groups, plot, ...options
}) {
  const sheets = rowSheets(rows, columns, options), show = open ?? sheets.open;
  const seen = new Set(shown), counts = {}, texts = new Map(), searched = columns.filter((column) => !column.number);
  const table = makeTable(byId("scroller"), rows, columns, { ...options, open: (row) => {
    show(row);
    drawing?.choose(plot.pointOf(row));
  } });
  const drawing = plot && new LogPlot(byId("plot"), { choose: ({ row }) => goTo(row), ...plot });
  const chosenGroups = groups && makeGroups(byId("groups"), groups.describe, refresh), { of = (row) => row } = groups ?? {};
  let words = [];
  for (const row of rows) counts[outcomeOf(row)] = (counts[outcomeOf(row)] ?? 0) + 1;

  function refresh() {
    const inGroup = chosenGroups ? rows.filter((row) => chosenGroups.has(of(row))) : rows;
    const found = inGroup.filter((row) => seen.has(outcomeOf(row)) && isWanted(row) && matches(row));
    const where = chosenGroups?.names().length ? ` in ${chosenGroups.names().join(".")}` : "";
    byId("count").textContent = `${grouped(found.length)} of ${plural(rows.length, ...noun)}${where}`;
    byId("scroller").scrollTop = 0;
    table.show(found);
    drawPlot();
  }

  function drawPlot() {
    if (!plot) return;
    const points = plot.keeps ? plot.points : [...new Set(table.rows().map(plot.pointOf))].filter(Boolean);
    drawing.draw(points, plot.pointOf(table.chosen()));
  }

  function matches(row) {
    if (!words.length) return true;
    const parts = () => [...searched.map((column) => column.of(row)), ...textOf(row)];
    if (!texts.has(row)) texts.set(row, parts().join(" ").toLowerCase());
    return words.every((word) => texts.get(row).includes(word));
  }

  /* Choose a row and bring it into sight; where filters hide it, everything is shown again. */
  function goTo(row) {
    if (!table.rows().includes(row)) widen();
    table.scrollTo(row);
    table.choose(row);
  }

  function widen() {
    words = [];
    byId("search").value = "";
    outcomes.forEach((outcome) => seen.add(outcome));
    byId("outcomes").childNodes.forEach((one) => one.setAttribute("aria-pressed", "true"));
    chosenGroups?.mark([]);
    forget();
    refresh();
  }

  /* Go to the next row of a kind, or to the one before where the step is -1; after the last comes the first. */
  function goOn(isSought, step = 1) {
    const all = step > 0 ? table.rows() : table.rows().toReversed(), at = all.indexOf(table.chosen());
    const found = all.find((row, place) => place > at && isSought(row)) ?? all.find(isSought);
    if (found !== undefined) goTo(found);
  }

  /* Open what the address leads to as `find` says, or else what is seen first. */
  function followLinks(find, openFirst) {
    onLink((fragment) => {
      const row = fragment ? find(fragment) : undefined;
      if (row !== undefined) goTo(row);
      return row !== undefined;
    }, openFirst);
  }

  byId("outcomes").replaceChildren(...outcomes.filter((outcome) => counts[outcome]).map((outcome) => {
    const made = button(`${names[outcome] ?? outcome} ${counts[outcome]}`, () => {
      const isOn = !seen.delete(outcome);
      if (isOn) seen.add(outcome);
      made.setAttribute("aria-pressed", String(isOn));
      refresh();
    }, outcome, seen.has(outcome));
    return made;
  }));
  onWords(byId("search"), (typed) => { words = typed; refresh(); });
  if (plot) byId("plot-box").append(plotLegend(plot));
  return { ...table, refresh, goTo, goOn, widen, followLinks, counts, sheets, drawPlot, groups: chosenGroups, plot: drawing };
}

/* What is typed, as words in lower case, a moment after the last key. */

function onWords(input, change) {
  let waiting = 0;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => change(input.value.toLowerCase().split(/\s+/).filter(Boolean)), 120);
  });
  onSlash(input);
}
