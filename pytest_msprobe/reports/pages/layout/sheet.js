/* Parts of a sheet, which says all of one thing. */

function factsList(pairs) {
  const list = element("dl");
  for (const [name, value, look] of pairs) {
    if (value !== "" && value !== null && value !== undefined) list.append(element("dt", name), element("dd", value, look));
  }
  return list;
}

function plainTable(titles, rows, look) {
  const box = element("div", undefined, "wide"), table = element("table", undefined, look), head = element("thead"), top = element("tr"), body = element("tbody");
  top.append(...titles.map((title) => element("th", title)));
  head.append(top);
  body.append(...rows.map((cells) => {
    const line = element("tr");
    line.append(...cells.map((cell) => element("td", String(cell ?? ""))));
    return line;
  }));
  table.append(head, body);
  box.append(table);
  return box;
}

/* A command with a button that copies it. */
function command(text) {
  const box = element("div", undefined, "command");
  box.append(element("pre", text), copyButton("copy", () => text));
  return box;
}

/* A button that copies the address of the page at a fragment. */
function linkButton(fragment) {
  const button = copyButton("copy link", () => `${location.href.split("#")[0]}#${encodeURIComponent(fragment)}`);
  button.classList.add("link");
  return button;
}

function copyButton(words, text) {
  const button = element("button", words);
  button.addEventListener("click", async () => {
    button.textContent = (await copied(text())) ? "copied" : "could not be copied";
    setTimeout(() => { button.textContent = words; }, 1500);
  });
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedFromField(text);
  }
}

// A page from disk may be refused the clipboard; a selected field is copied there as well.
function copiedFromField(text) {
  const field = element("textarea", text, "unseen"), focused = document.activeElement;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return isCopied;
}

/* Open what the address of the page leads to, now and when another one is given. Returns whether anything was opened. */
function onLink(open) {
  window.addEventListener("hashchange", () => open(linkedFragment()));
  return open(linkedFragment());
}

/* What the address of the page leads to. */
function linkedFragment() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}
