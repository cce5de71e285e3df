/* The head of every page: what ran on what, the other pages of the run, the colours. */

function showHeader(title, about, notes = []) {
  document.title = byId("title").textContent = title;
  byId("about").textContent = about;
  byId("notes").replaceChildren(...notes.map((note) => element("p", note)));
}

function showLinks() {
  byId("links").hidden = !page.links?.length;
  byId("links").replaceChildren(...(page.links ?? []).map(([text, address, title]) => {
    const link = element("a", text);
    link.href = address;
    link.title = title ?? "";
    return link;
  }));
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
showLinks();
