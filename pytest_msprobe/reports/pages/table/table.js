/* A table of many rows, of which only those in sight are in the document; it is given them in their first order. A
   column has a title and `of`, which returns what it shows of a row; `by` what it sorts by where that is another thing,
   `number`, `name` and `look` how it is set (a name that is too long is cut in front); one that has `grow` takes the
   room that is left, one that `isApart` is no line of a sheet. `open` is called with a row that is chosen, or null,
   `look` gives a class to a row, `prints` says which are on paper. */

const ROW_HEIGHT = 24, MOST_PRINTED = 100;

function makeTable(box, every, columns, { open, label, look = () => "", prints = () => true }) {
  const state = { given: every, rows: every, sort: null, down: true, chosen: null }, body = element("tbody");
  const widths = columnWidths(columns, every), titles = columns.map((column, place) => {
    const sorter = element("div", button(column.title, () => sortBy(column)), "", { style: `width: ${widths[place]}` });
    return element("th", sorter, column.number ? "number" : "", { "aria-sort": "none" });
  });
  box.replaceChildren(element("table", [element("thead", element("tr", titles)), body], "rows"));
  box.tabIndex = 0;
  box.setAttribute("aria-label", label);

  function sortBy(column) {
    // A third click gives the first order back.
    if (state.sort !== column) [state.sort, state.down] = [column, true];
    else if (state.down) state.down = false;
    else state.sort = null;
    const order = (one) => (one !== state.sort ? "none" : state.down ? "descending" : "ascending");
    titles.forEach((title, place) => title.setAttribute("aria-sort", order(columns[place])));
    show(state.given);
  }

  function show(rows) {
    state.given = state.rows = rows;
    if (state.sort) {
      const key = state.sort.by ?? state.sort.of, sign = state.down ? -1 : 1;
      const keys = new Map(rows.map((row) => [row, asNumber(key(row)) ?? ""]));
      state.rows = rows.slice().sort((a, b) => compareKeys(keys.get(a), keys.get(b), sign));
    }
    draw();
  }

  function draw() {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW_HEIGHT) - 10);
    const last = Math.min(state.rows.length, first + Math.ceil(box.clientHeight / ROW_HEIGHT) + 20);
    const parts = [gap(first * ROW_HEIGHT)];
    for (let place = first; place < last; place++) parts.push(line(state.rows[place]));
    parts.push(gap((state.rows.length - last) * ROW_HEIGHT));
    body.replaceChildren(...parts);
  }

  function gap(height) {
    return element("tr", element("td", [], "", { style: `height: ${height}px`, colspan: columns.length }), "gap");
  }

  function line(row) {
    const isChosen = row === state.chosen, made = element("tr", columns.map((column) => cell(column, row)), look(row));
    if (isChosen) filled(made, [], { class: `${look(row)} chosen`.trim(), "aria-selected": true });
    made.addEventListener("click", () => choose(row));
    return made;
  }

  function cell(column, row) {
    const title = shownText(column, row);
    const kinds = ["number", "name", "grow"].filter((kind) => column[kind]);
    const looks = [...kinds, column.look?.(row)].filter(Boolean).join(" ");
    // What reads from the left is cut at the left in a cell that reads from the right.
    return element("td", column.name ? element("bdi", title, "", { dir: "ltr" }) : title, looks, { title });
  }

  function choose(row) {
    state.chosen = row;
    draw();
    open(row);
  }

  function scrollTo(row) {
    const place = state.rows.indexOf(row), top = place * ROW_HEIGHT;
    if (place < 0) return;
    const isSeen = top >= box.scrollTop && top <= box.scrollTop + box.clientHeight - 3 * ROW_HEIGHT;
    if (!isSeen) box.scrollTop = Math.max(0, top - box.clientHeight / 3);
  }

  function move(by) {
    if (!state.rows.length) return;
    const at = state.rows.indexOf(state.chosen);
    const row = state.rows[at < 0 ? 0 : Math.min(state.rows.length - 1, Math.max(0, at + by))];
    scrollTo(row);
    choose(row);
  }

  const moves = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
  onKeys(box, () => Object.fromEntries(Object.entries(moves).map(([key, by]) => [key, () => move(by)])));
  box.addEventListener("scroll", () => requestAnimationFrame(draw));
  onSize(box, draw);
  // Paper has no rows out of sight.
  window.addEventListener("beforeprint", () => {
    const all = state.rows, printed = all.filter(prints), shown = printed.slice(0, MOST_PRINTED);
    const left = `${shown.length} of ${plural(all.length, "row")}: what is right and what follows is left out`;
    const note = element("tr", element("td", left, "soft", { colspan: columns.length }));
    body.replaceChildren(...shown.map(line), ...(shown.length < all.length ? [note] : []));
  });
  window.addEventListener("afterprint", draw);
  return { show, draw, choose, scrollTo, rows: () => state.rows, chosen: () => state.chosen };
}

function shownText(column, row) {
  const value = column.of(row);
  return column.number ? numberText(value) : value ?? "";
}

function compareKeys(a, b, sign) {
  if (a === "" || b === "") return (a === "") - (b === "");
  if (typeof a === "number" && typeof b === "number") return sign * (a < b ? -1 : a > b ? 1 : 0);
  return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
}
