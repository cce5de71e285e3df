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
      button.tabIndex = isShown ? 0 : -1;
    }
    tabs.find((tab) => tab.id === id).open?.();
  }

  for (const [id, button] of buttons) button.addEventListener("click", () => show(id));
  box.addEventListener("keydown", (event) => {
    const names = [...buttons.keys()], at = names.findIndex((id) => buttons.get(id) === document.activeElement);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (next === undefined || at < 0) return;
    event.preventDefault();
    const id = names.at(next % names.length);
    show(id);
    buttons.get(id).focus();
  });
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
