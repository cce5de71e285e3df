/* Rows in groups, and in groups of those: a list of buttons, in which one that is chosen shows what is in it. `describe`
   says of a group, which has its `rows` and `depth`, its `counts` and their `look`, a `title`, `more` elements, whether it
   `isMarked`, and whether it `isOpen` before it is chosen. `changed` is called when a reader chooses another. */

const MOST_GROUPS = 300;

function makeGroups(box, describe, changed) {
  const newGroup = (name, outer) => ({ name, outer, depth: outer ? outer.depth + 1 : 0, rows: [], inside: new Map() });
  let everything = newGroup("everything"), chosen = everything, kept = new Set();

  /* Group rows by the names that `namesOf` gives for each, the outermost first, and choose the group of some names. */
  function show(rows, namesOf, names = []) {
    everything = newGroup("everything");
    for (const row of rows) {
      let group = everything;
      group.rows.push(row);
      for (const name of namesOf(row)) {
        if (!group.inside.has(name)) group.inside.set(name, newGroup(name, group));
        group = group.inside.get(name);
        group.rows.push(row);
      }
    }
    mark(names);
  }

  /* Choose the group of these names, or everything where there are none. */
  function mark(names) {
    chosen = names.reduce((group, name) => group.inside.get(name) ?? group, everything);
    kept = new Set(chosen.rows);
    const isHere = box.contains(document.activeElement);
    box.replaceChildren(...lines(everything));
    if (isHere) box.querySelector("[aria-pressed='true']").focus();
  }

  function lines(group) {
    group.about ??= describe(group);
    const inside = [...group.inside.values()], left = inside.length - MOST_GROUPS;
    const isOpen = !group.outer || group.about.isOpen || pathOf(chosen).includes(group);
    const within = isOpen ? inside.slice(0, MOST_GROUPS).flatMap(lines) : [];
    return [line(group, isOpen), ...within, ...(isOpen && left > 0 ? [element("p", `and ${left} more`)] : [])];
  }

  function line(group, isOpen) {
    const { counts, look, title, more = [], isMarked } = group.about;
    const content = [element("span", group.name, isMarked ? "name marked" : "name"), element("span", counts, look), ...more];
    // What is chosen once more is left for what it is in.
    const choose = () => { mark(namesOf(group === chosen && group.outer ? group.outer : group)); changed(); };
    const made = button(content, choose, "", group === chosen);
    if (group.outer && group.inside.size) made.setAttribute("aria-expanded", isOpen);
    return filled(made, [], { title, style: `--depth: ${Math.max(0, group.depth - 1)}` });
  }

  const pathOf = (group) => (group.outer ? [...pathOf(group.outer), group] : []);
  const namesOf = (group) => pathOf(group).map(({ name }) => name);
  oneStop(box, "button");
  return { show, mark, has: (row) => chosen === everything || kept.has(row), path: () => namesOf(chosen) };
}

/* "3 of 5" where three are wrong. */
function wrongText(wrong, all) {
  return wrong ? `${wrong} of ${all}` : String(all);
}
