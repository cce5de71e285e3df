/* Of the controls in a box one is a stop of the Tab key, at first that which is chosen; arrow keys, Home and End go to the
   others, and `went` is called with the one that they lead to. Controls may come and go. */
function oneStop(box, selector, { isRow = false, went = () => {} } = {}) {
  const controls = () => [...box.querySelectorAll(selector)].filter((one) => one.checkVisibility());
  const stopAt = (stop) => controls().forEach((one) => { one.tabIndex = one === stop ? 0 : -1; });
  const update = () => {
    const all = controls();
    stopAt(all.find((one) => one === document.activeElement) ?? all.find((one) => one.matches(".chosen, [aria-pressed='true'], [aria-selected='true']")) ?? all[0]);
  };
  box.addEventListener("focusin", ({ target }) => { if (target.matches(selector)) stopAt(target); });
  box.addEventListener("keydown", (event) => {
    const all = controls(), at = all.indexOf(document.activeElement);
    const to = { [isRow ? "ArrowRight" : "ArrowDown"]: at + 1, [isRow ? "ArrowLeft" : "ArrowUp"]: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = all[isRow ? (to + all.length) % all.length : Math.max(0, Math.min(all.length - 1, to))];
    next.focus();
    went(next);
  });
  new MutationObserver(update).observe(box, { childList: true, subtree: true, attributes: true, attributeFilter: ["open", "class", "hidden"] });
  update();
}
