/* Views of which one is shown: `tabs` have the `id` of their panel, a title and what is done when they are opened. */

function makeTabs(box, tabs) {
  const panels = tabs.map(({ id, title, open }) => (
    { id, open, panel: byId(id), tab: tabButton(id, title, () => show(id)) }
  ));
  box.className = "tabs";
  box.setAttribute("role", "tablist");
  box.replaceChildren(...panels.map(({ tab }) => tab));

  function show(id) {
    for (const each of panels) {
      each.panel.hidden = each.id !== id;
      each.tab.setAttribute("aria-selected", each.id === id);
    }
    panels.find((each) => each.id === id).open?.();
  }

  oneStop(box, "button", { isRow: true, went: (tab) => tab.click() });
  return { show };
}

function tabButton(id, title, act) {
  const tab = filled(button(title, act), [], { id: `tab-${id}`, role: "tab", "aria-controls": id });
  filled(byId(id), [], { role: "tabpanel", "aria-labelledby": tab.id });
  return tab;
}
