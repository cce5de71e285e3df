/* The head of every page: what ran on what, the other pages of the run, the colours. */

function showHeader(title, about, notes = []) {
  document.title = byId("title").textContent = title;
  byId("about").textContent = about;
  byId("notes").replaceChildren(...notes.map((note) => element("p", note)));
}

function chooseTheme(name) {
  chosenTheme = name;
  remember("theme", name);
  setTheme(name);
  byId("theme").textContent = `colors: ${name}`;
}

byId("theme").addEventListener("click", () => chooseTheme(THEMES[(THEMES.indexOf(chosenTheme) + 1) % THEMES.length]));
chooseTheme(chosenTheme);
byId("links").hidden = !page.links?.length;
byId("links").append(...(page.links ?? []).map(([text, href, title = ""]) => element("a", text, "", { href, title })));
