"use strict";

/* What a reader chose stays with the browser, by kind of page; where that keeps nothing, each page begins anew. */

function remembered(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`msprobe.${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(`msprobe.${name}`, JSON.stringify(value));
  } catch {
    // A browser may refuse to keep anything.
  }
}

/* The colours: those of the system, or those that the reader chose. This runs before anything is drawn. */

const THEMES = ["system", "light", "dark"];
const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = remembered("theme", THEMES[0]);

function setTheme(name) {
  const shown = name === "system" ? (systemIsDark.matches ? "dark" : "light") : name;
  if (document.documentElement.dataset.theme === shown) return;
  document.documentElement.dataset.theme = shown;
  window.dispatchEvent(new Event("themechange"));
}

setTheme(chosenTheme);
systemIsDark.addEventListener("change", () => setTheme(chosenTheme));
window.addEventListener("beforeprint", () => setTheme("light"));
window.addEventListener("afterprint", () => setTheme(chosenTheme));
