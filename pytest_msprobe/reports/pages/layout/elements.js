"use strict";
const page = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const kindOfPage = document.documentElement.dataset.page;

/* An element with a text, another element, or a list of both in it. */
function element(tag, content, className, attributes) {
  return filled(document.createElement(tag), content, className ? { class: className, ...attributes } : attributes);
}

function svg(tag, attributes, content) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), content, attributes);
}

function filled(made, content, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) made.setAttribute(name, value);
  made.append(...[content ?? []].flat());
  return made;
}

/* A button; one that can be pressed says whether it is. */
function button(content, act, className, isPressed) {
  const made = element("button", content, className, isPressed === undefined ? {} : { "aria-pressed": isPressed });
  made.addEventListener("click", act);
  return made;
}

/* A list to choose from, filled with pairs of a title and a value. */
function choices(list, entries, change) {
  list.replaceChildren(...entries.map(([title, value]) => element("option", title, "", { value })));
  list.addEventListener("change", () => change(list.value));
  return list;
}

/* A list of a line for each entry, which may be a list of elements. */
function listOf(lines, className, tag = "ul") {
  return element(tag, lines.map((line) => element("li", line)), className);
}
