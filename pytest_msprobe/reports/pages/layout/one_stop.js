/* Of the controls in a box one is a stop of the Tab key, at first that which is chosen; arrow keys, Home and End go to the
   others, and `went` is called with the one that they lead to. Controls may come and go. */
const CHOSEN = ".chosen, [aria-pressed='true'], [aria-selected='true']";

function oneStop(box, selector, { isRow = false, went = () => {} } = {}) {
  const controls = () => [...box.querySelectorAll(selector)].filter((one) => one.checkVisibility());
  const stopAt = (stop) => controls().forEach((one) => { one.tabIndex = one === stop ? 0 : -1; });
  const update = () => {
    const all = controls();
    stopAt(all.find((one) => one === document.activeElement) ?? all.find((one) => one.matches(CHOSEN)) ?? all[0]);
  };
  box.addEventListener("focusin", ({ target }) => { if (target.matches(selector)) stopAt(target); });
  onKeys(box, () => {
    const all = controls(), at = all.indexOf(document.activeElement);
    const go = (to) => () => { all[to].focus(); went(all[to]); };
    const along = (to) => go(isRow ? (to + all.length) % all.length : Math.max(0, Math.min(all.length - 1, to)));
    const [next, last] = isRow ? ["ArrowRight", "ArrowLeft"] : ["ArrowDown", "ArrowUp"];
    return at < 0 ? {} : { [next]: along(at + 1), [last]: along(at - 1), Home: go(0), End: go(all.length - 1) };
  });
  const watched = { childList: true, subtree: true, attributes: true, attributeFilter: ["open", "class", "hidden"] };
  new MutationObserver(update).observe(box, watched);
  update();
}
