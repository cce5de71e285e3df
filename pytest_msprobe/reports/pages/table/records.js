/* The table of what a page is about, and what chooses its rows: a search, and a button for each outcome. */

/* Outcomes up to the gravest; what ended without a verdict is as grave as a failure. */
const LOOKS = ["skip", "pass", "warn", "fail"];
const gravityOf = (outcome) => (LOOKS.includes(outcome) ? LOOKS.indexOf(outcome) : LOOKS.length - 1);

/* `rows` are in their first order. `outcomeOf` says what came of a row, `textOf` gives what a search looks through,
   `isWanted` whether filters of the page show it and `forget` takes those back; `shown` outcomes are seen at first, all
   others where there is none. `changed` is called when other rows are shown. */
function makeRecords(rows, columns, {
  outcomes, outcomeOf, textOf, noun, names = {}, shown = outcomes, isWanted = () => true, where = () => "",
  forget = () => {}, changed = () => {}, ...options
}) {
  const table = makeTable(byId("scroller"), columns, options), seen = new Set(shown), counts = {}, texts = new Map();
  let words = [];
  for (const row of rows) counts[outcomeOf(row)] = (counts[outcomeOf(row)] ?? 0) + 1;

  function refresh() {
    const found = rows.filter((row) => seen.has(outcomeOf(row)) && isWanted(row) && matches(row));
    byId("count").textContent = `${found.length} of ${plural(rows.length, ...noun)}${where()}`;
    byId("scroller").scrollTop = 0;
    table.show(found);
    changed(found);
  }

  function matches(row) {
    if (!words.length) return true;
    if (!texts.has(row)) texts.set(row, textOf(row).join(" ").toLowerCase());
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
    forget();
    refresh();
  }

  /* Open what the address leads to as `find` says, or else what is seen first. */
  function followLinks(find, openFirst) {
    onLink((fragment) => {
      const row = find(fragment);
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
  return { ...table, refresh, goTo, widen, followLinks, counts };
}

/* What is typed, as words in lower case, a moment after the last key. The key / leads to the field where it is seen. */

function onWords(input, change) {
  let waiting = 0;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => change(input.value.toLowerCase().split(/\s+/).filter(Boolean)), 120);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || !isForPage(event) || !input.offsetParent) return;
    event.preventDefault();
    input.focus();
  });
}

/* Groups of rows, of which one may be chosen: each has a key and what its button shows. */
function groupButtons(groups, chosen, choose) {
  const made = groups.map(({ key, content, title = "" }) => {
    const one = button(content, () => choose(chosen === key ? null : key), "", chosen === key);
    one.title = title;
    return one;
  });
  byId("groups").replaceChildren(...made);
}
