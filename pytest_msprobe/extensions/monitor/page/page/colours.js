/* The colours of the theme. They are kept, because asking for one may have the browser compute all styles anew. */

const themeColours = new Map();

function themeColour(name) {
  if (!themeColours.has(name)) themeColours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return themeColours.get(name);
}

window.addEventListener("themechange", () => themeColours.clear());
