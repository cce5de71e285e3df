/* The head of every page: what ran on what, the other pages of the run, the colours. */

function showHeader(title, about, notes = []) {
  document.title = byId("title").textContent = title;
  byId("about").textContent = about;
  byId("notes").replaceChildren(...notes.map((note) => element("p", note)));
}

function showTheme() {
  byId("theme").textContent = `colors: ${chosenTheme}`;
}

byId("theme").addEventListener("click", () => {
  chosenTheme = THEMES[(THEMES.indexOf(chosenTheme) + 1) % THEMES.length];
  remember("theme", chosenTheme);
  setTheme(chosenTheme);
  showTheme();
});
showTheme();
byId("links").hidden = !page.links?.length;
byId("links").append(...(page.links ?? []).map(([text, href, title = ""]) => element("a", text, "", { href, title })));
