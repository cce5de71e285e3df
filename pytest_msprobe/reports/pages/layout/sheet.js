/* Parts of a sheet, which says all of one thing. */

/* Show a sheet of what is open, to which a fragment of the address leads. */
function showSheet(parts, fragment) {
  byId("details").replaceChildren(...parts);
  byId("details").scrollTop = 0;
  if (fragment) openPane("details-box");
  setFragment(fragment);
}

function factsList(pairs) {
  const given = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return element("dl", given.flatMap(([name, value, look]) => [element("dt", name), element("dd", unbroken(value), look)]));
}

/* A text that no line ends in a number of: a browser breaks 1e-4 after its sign. */
function unbroken(text) {
  if (typeof text !== "string") return text;
  const parts = text.split(/(\d[\d.]*e-\d+)/);
  return parts.map((part, place) => (place % 2 ? element("span", part, "whole") : part));
}

function plainTable(titles, rows, look) {
  const lookOf = (cell) => (typeof cell === "number" ? "number" : "");
  const line = (tag) => (cells) => element("tr", cells.map((cell) => element(tag, cell ?? "", lookOf(cell))));
  const parts = [element("thead", line("th")(titles)), element("tbody", rows.map(line("td")))];
  return element("div", element("table", parts, look), "wide");
}

/* Texts below their titles. */
function titledTexts(pairs) {
  return pairs.flatMap(([title, text]) => (text ? [element("h3", title), element("pre", unbroken(text))] : []));
}

/* A command with a button that copies it. */
const command = (text) => element("div", [element("pre", text), copyButton("copy", () => text)], "command");

/* A button that copies the address of the page at a fragment. */
function linkButton(fragment) {
  return copyButton("copy link", () => `${location.href.split("#")[0]}#${encodeURIComponent(fragment)}`, "link");
}

function copyButton(words, text, look) {
  const made = button(words, () => {
    made.textContent = isCopied(text()) ? "copied" : "could not be copied";
    setTimeout(() => { made.textContent = words; }, 1500);
  }, look);
  return made;
}

// A page from disk, of a plain server or in a frame may be refused the clipboard, but may copy what is selected.
function isCopied(text) {
  const field = element("textarea", text, "unseen"), focused = document.activeElement;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return done;
}

/* Commands that go on from what is open, as titles and words; in a word <dump>, <record> and so on are the value of that
   name, and <rerun> is a whole command. The first command is seen, the others are folded. */
function nextSteps(given, steps = page.commands ?? []) {
  const call = /^(?!Module\.|Cell\.).*\.(forward|backward)$/.test(given.record) ? given.record : undefined;
  const values = { ...given, call }, names = /<(dump|record|call|saved|rerun)>/g;
  const isKnown = (word) => [...word.matchAll(names)].every(([, name]) => values[name]);
  const unfolded = (word) => (word === "<rerun>" ? values.rerun : [word]);
  const textIn = (word) => word.replace(names, (_, name) => values[name]);
  const textOf = (words) => words.flatMap(unfolded).map((word) => quoted(textIn(word)));
  const known = steps.filter(([, words]) => words.every(isKnown));
  const shown = known.map(([title, words]) => [element("p", title, "soft"), command(textOf(words).join(" "))]);
  if (shown.length < 2) return shown.flat();
  const further = [element("summary", "further commands"), ...shown.slice(1).flat()];
  return [...shown[0], element("details", further, "further")];
}

/* A word of a command, quoted for a shell. */
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

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
