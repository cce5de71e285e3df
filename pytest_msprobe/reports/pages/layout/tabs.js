/* Views of which one is shown: `tabs` have the `id` of their panel, a title and what is done when they are opened. */

function makeTabs(box, tabs) {
  box.className = "tabs";
  box.setAttribute("role", "tablist");
  const buttons = new Map(tabs.map(({ id, title }) => [id, tabButton(id, title)]));
  box.replaceChildren(...buttons.values());

  function show(id) {
    for (const [each, button] of buttons) {
      const isShown = each === id;
      byId(each).hidden = !isShown;
      button.setAttribute("aria-selected", String(isShown));
    }
    tabs.find((tab) => tab.id === id).open?.();
  }

  for (const [id, button] of buttons) button.addEventListener("click", () => show(id));
  oneStop(box, "button", { isRow: true, went: (button) => button.click() });
  return { show };
}

function tabButton(id, title) {
  const button = element("button", title), panel = byId(id);
  button.id = `tab-${id}`;
  button.setAttribute("role", "tab");
  button.setAttribute("aria-controls", id);
  panel.setAttribute("role", "tabpanel");
  panel.setAttribute("aria-labelledby", button.id);
  return button;
}
