/* What keys do. */

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/* Whether a key is pressed alone, not as a part of a shortcut. */
const isPlain = (event) => !event.ctrlKey && !event.metaKey && !event.altKey;

/* Whether a key is for the page: not for a part of it, nor typed into a field. */
const isInField = (event) => /^(INPUT|SELECT)$/.test(event.target.tagName);
const isForPage = (event) => !event.defaultPrevented && isPlain(event) && !isInField(event);

/* Let keys that are pressed in a box do something; `keysOf` gives what each of them does now. */
function onKeys(box, keysOf) {
  box.addEventListener("keydown", (event) => {
    const keys = isPlain(event) ? keysOf(event) : {};
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
}

/* Let the key / lead to a field where it is seen. */
function onSlash(field) {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || !isForPage(event) || !field.offsetParent) return;
    event.preventDefault();
    field.focus();
  });
}
