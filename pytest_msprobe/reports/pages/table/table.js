/* A table of many rows, of which only those in sight are in the document; it is given them in their first order. A column
   has a title, a width and `of`, which returns what it shows of a row; `by` what it sorts by where that is something else,
   `number`, `name` and `look` how it is set (a name that is too long is cut in front), `narrow` its width on a narrow screen; one that has `grow` takes the room that is
   left. `open` is called with a row that is chosen, `look` gives a class to a row. Under `name` the browser keeps the
   widths that the reader chose. */

const ROW_HEIGHT = 24;

function makeTable(box, columns, { open, label, name, look = () => "" }) {
  const state = { given: [], rows: [], sort: null, down: true, chosen: null };
  const table = element("table"), widths = element("colgroup"), head = element("thead"), titles = element("tr"), body = element("tbody");
  head.append(titles);
  table.append(widths, head, body);
  box.replaceChildren(table);
  box.tabIndex = 0;
  box.setAttribute("aria-label", label);

  const sizes = new ColumnWidths(columns, `${kindOfPage}.${name ?? label}.widths`);

  function setWidths() {
    const wide = sizes.all(box.clientWidth);
    widths.replaceChildren(...wide.map((width) => {
      const col = element("col");
      col.style.width = `${width}px`;
      return col;
    }));
    table.style.width = `${wide.reduce((sum, width) => sum + width, 0)}px`;
  }

  function drawTitles() {
    titles.replaceChildren(...columns.map((column) => {
      const title = element("th", undefined, column.number ? "number" : ""), arrow = state.sort === column ? (state.down ? " ▼" : " ▲") : "";
      const button = element("button", column.title + arrow);
      title.append(button, sizes.grip(column, title, setWidths));
      title.setAttribute("aria-sort", state.sort === column ? (state.down ? "descending" : "ascending") : "none");
      title.addEventListener("keydown", (event) => sizes.press(event, column, title, setWidths));
      button.addEventListener("click", () => sortBy(column));
      return title;
    }));
  }

  function sortBy(column) {
    // A third click gives the first order back.
    if (state.sort !== column) [state.sort, state.down] = [column, true];
    else if (state.down) state.down = false;
    else state.sort = null;
    const place = columns.indexOf(column);
    drawTitles();
    titles.children[place].querySelector("button").focus();
    show(state.given);
  }

  function show(rows) {
    state.given = state.rows = rows;
    if (state.sort) {
      const key = state.sort.by ?? state.sort.of, sign = state.down ? -1 : 1;
      const keys = new Map(rows.map((row) => [row, asNumber(key(row))]));
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
    const row = element("tr", undefined, "gap"), cell = element("td");
    cell.style.height = `${height}px`;
    cell.colSpan = columns.length;
    row.append(cell);
    return row;
  }

  function line(row) {
    const made = element("tr", undefined, look(row));
    if (row === state.chosen) {
      made.classList.add("chosen");
      made.setAttribute("aria-selected", "true");
    }
    for (const column of columns) {
      const value = column.of(row), shown = column.number ? numberText(value) : value ?? "";
      const cell = element("td", column.name ? undefined : shown, [column.number ? "number" : "", column.name ? "name" : "", column.look?.(row) ?? ""].join(" ").trim());
      // What reads from the left is cut at the left in a cell that reads from the right.
      if (column.name) cell.append(Object.assign(element("bdi", shown), { dir: "ltr" }));
      cell.title = shown;
      made.append(cell);
    }
    made.addEventListener("click", () => choose(row));
    return made;
  }

  function choose(row) {
    state.chosen = row;
    draw();
    if (row !== null) open(row);
  }

  function scrollTo(row) {
    const place = state.rows.indexOf(row), top = place * ROW_HEIGHT;
    if (place < 0) return;
    if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 3 * ROW_HEIGHT) box.scrollTop = Math.max(0, top - box.clientHeight / 3);
  }

  function move(by) {
    if (!state.rows.length) return;
    const at = state.rows.indexOf(state.chosen);
    const row = state.rows[at < 0 ? 0 : Math.min(state.rows.length - 1, Math.max(0, at + by))];
    scrollTo(row);
    choose(row);
  }

  const KEYS = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
  box.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move(KEYS[event.key]);
  });
  box.addEventListener("scroll", () => requestAnimationFrame(draw));
  window.addEventListener("resize", () => { setWidths(); draw(); });
  setWidths();
  drawTitles();
  return { show, draw, choose, scrollTo, rows: () => state.rows, chosen: () => state.chosen };
}

function compareKeys(a, b, sign) {
  const missingA = a === null || a === undefined || a === "", missingB = b === null || b === undefined || b === "";
  if (missingA || missingB) return missingA - missingB;
  if (typeof a === "number" && typeof b === "number") return sign * (a < b ? -1 : a > b ? 1 : 0);
  return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
}

/* Buttons that show or hide what has an outcome; returns what shows all again, without saying so. */

function outcomeButtons(box, outcomes, counts, shown, change) {
  box.replaceChildren(...outcomes.filter((outcome) => counts[outcome]).map((outcome) => {
    const button = element("button", `${outcome} ${counts[outcome]}`, outcome);
    button.setAttribute("aria-pressed", String(shown.has(outcome)));
    button.addEventListener("click", () => {
      const on = !shown.delete(outcome);
      if (on) shown.add(outcome);
      button.setAttribute("aria-pressed", String(on));
      change();
    });
    return button;
  }));
  return () => {
    outcomes.forEach((outcome) => shown.add(outcome));
    for (const button of box.children) button.setAttribute("aria-pressed", "true");
  };
}

/* Whether a key is for the page: not a part of a shortcut, nor typed into a field. */
function isForPage(event) {
  return !event.defaultPrevented && !event.ctrlKey && !event.metaKey && !event.altKey && !/^(INPUT|SELECT)$/.test(event.target.tagName);
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
