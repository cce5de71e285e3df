/* What is known of a row: `nameOf` names it, with `placesOf` where several have this name: together the end of an address
   that opens it. `sheetOf` gives the parts below its name, `emptySheet` what is seen where no row is chosen. */
function rowSheets(rows, columns, { nameOf, placesOf = () => [], sheetOf, emptySheet = () => [] }) {
  const fragmentOf = (row) => [nameOf(row), ...placesOf(row)].join("::");

  /* All of a row; a line may break after the dots and slashes of its name. */
  function full(row) {
    const title = nameOf(row).split(/(?<=[./])/).flatMap((part) => [part, element("wbr")]);
    return [element("h2", title), linkButton(fragmentOf(row)), ...sheetOf(row)];
  }

  /* What the columns say of a row, but those of which the sheet says more apart, and more of it. */
  function facts(row, more = []) {
    const shown = columns.filter(({ name, isApart }) => !name && !isApart);
    return factsList([...shown.map((column) => [column.title, shownText(column, row), column.look?.(row)]), ...more]);
  }

  function open(row) {
    if (row === null) showSheet(emptySheet(), "");
    else showSheet(full(row), fragmentOf(row));
  }

  /* The row of an address, or one of its name where its place is not here. */
  function find(fragment) {
    const named = rows.filter((row) => `${fragment}::`.startsWith(`${nameOf(row)}::`));
    return named.find((row) => fragmentOf(row) === fragment) ?? named[0];
  }

  return { full, facts, open, find, fragmentOf };
}
