/* Rows in groups, and in groups of those: a list of buttons, in which one that is chosen shows what is in it. Of a
   group, which has `rows` and a `depth`, `describe` says the `counts` and their `look`, a `title`, `more` elements,
   whether it `isMarked`, and whether it `isOpen` before it is chosen. `changed` is called when a reader chooses. */

const MOST_GROUPS = 300;

function makeGroups(box, describe, changed) {
  const newGroup = (names) => ({ names, depth: names.length, rows: [], inside: new Map() });
  let everything = newGroup([]), chosen = everything, kept = new Set(), around = new Set();

  /* Group rows by the names that `namesOf` gives for each, the outermost first, and choose the group of some names. */
  function show(rows, namesOf, names = []) {
    everything = newGroup([]);
    for (const row of rows) {
      let group = everything;
      group.rows.push(row);
      for (const name of namesOf(row)) {
        if (!group.inside.has(name)) group.inside.set(name, newGroup([...group.names, name]));
        group = group.inside.get(name);
        group.rows.push(row);
      }
    }
    mark(names);
  }

  /* Choose the group of these names, or everything where there are none. */
  function mark(names) {
    around = new Set([chosen = everything]);
    for (const name of names) around.add(chosen = chosen.inside.get(name) ?? chosen);
    kept = new Set(chosen.rows);
    const isHere = box.contains(document.activeElement);
    box.replaceChildren(...lines(everything));
    if (isHere) box.querySelector("[aria-pressed='true']").focus();
  }

  function lines(group) {
    group.about ??= describe(group);
    if (!group.about.isOpen && !around.has(group)) return [line(group, false)];
    const inside = [...group.inside.values()], left = inside.length - MOST_GROUPS;
    const more = left > 0 ? [element("p", `and ${left} more`)] : [];
    return [line(group, true), ...inside.slice(0, MOST_GROUPS).flatMap(lines), ...more];
  }

  function line({ names, depth, inside, about }, isOpen) {
    const name = names.at(-1) ?? "everything", isChosen = names === chosen.names;
    const { counts, look, title = name, more = [], isMarked } = about;
    // What is chosen once more is left for what it is in.
    const choose = () => { mark(isChosen ? names.slice(0, -1) : names); changed(); };
    const content = [element("span", name, isMarked ? "name marked" : "name"), element("span", counts, look), ...more];
    const made = button(content, choose, "", isChosen);
    if (depth && inside.size) made.setAttribute("aria-expanded", isOpen);
    return filled(made, [], { title, style: `--depth: ${Math.max(0, depth - 1)}` });
  }

  oneStop(box, "button");
  return { show, mark, has: (row) => chosen === everything || kept.has(row), names: () => chosen.names };
}

/* "3 of 5" where three are wrong. */
const wrongText = (wrong, all) => (wrong ? `${wrong} of ${all}` : String(all));
