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

/* Commands that go on from what is open, as titles and words; in a word <dump>, <record> and so on are the value of that
   name, and <rerun> is a whole command. The first command is seen, the others are folded. */
function nextSteps(given, steps = page.commands ?? []) {
  const values = { ...given, call: /^(?!Module\.|Cell\.).*\.(forward|backward)$/.test(given.record) ? given.record : undefined };
  const isKnown = (word) => [...word.matchAll(/<(dump|record|call|saved|rerun)>/g)].every(([, name]) => values[name]);
  const filled = (word) => word.replace(/<(dump|record|call|saved)>/g, (_, name) => values[name]);
  const lines = steps.filter(([, words]) => words.every(isKnown)).map(([title, words]) =>
    [title, words.flatMap((word) => (word === "<rerun>" ? values.rerun : [word])).map(filled).map(quoted).join(" ")]);
  const shown = lines.map(([title, text]) => [element("p", title, "soft"), command(text)]);
  if (shown.length < 2) return shown.flat();
  const further = element("details", undefined, "further");
  further.append(element("summary", "further commands"), ...shown.slice(1).flat());
  return [...shown[0], further];
}

/* A word of a command, quoted for a shell. */
function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

/* Open what the address of the page leads to, or else what is seen first; again whenever the address is another. */
function onLink(open, openFirst) {
  const follow = () => { if (!open(linkedFragment())) openFirst(); };
  window.addEventListener("hashchange", follow);
  follow();
  lastChange = 0;
}

/* Put what is open into the address. The browser's way back leads to what was open before; what was open for less than a
   second, as while keys go through a table, is left out. */
const SHORTEST_STAY = 1000;
let lastChange = Infinity;

function setFragment(fragment) {
  if (linkedFragment() === fragment) return;
  const address = fragment ? `#${encodeURIComponent(fragment)}` : location.href.split("#")[0];
  if (Date.now() - lastChange > SHORTEST_STAY) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  if (lastChange !== Infinity) lastChange = Date.now();
}

/* What the address of the page leads to. */
function linkedFragment() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}
