/* Views of which one is shown: `tabs` have the `id` of their panel, a title and what is done when they are opened. */

function makeTabs(box, tabs) {
  const buttons = tabs.map(({ id, title }) => {
    filled(byId(id), [], { role: "tabpanel", "aria-labelledby": `tab-${id}` });
    return filled(button(title, () => show(id)), [], { id: `tab-${id}`, role: "tab", "aria-controls": id });
  });
  box.className = "tabs";
  box.setAttribute("role", "tablist");
  box.replaceChildren(...buttons);

  function show(id) {
    tabs.forEach((tab, place) => {
      byId(tab.id).hidden = tab.id !== id;
      buttons[place].setAttribute("aria-selected", tab.id === id);
    });
    tabs.find((tab) => tab.id === id).open?.();
  }

  oneStop(box, "button", { isRow: true, went: (tab) => tab.click() });
  return { show };
}
