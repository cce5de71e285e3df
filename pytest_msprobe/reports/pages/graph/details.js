/* What is known of the chosen call: its verdict, where to go from it, where its values come from and go to. */

const MOST_VALUES = 30;

class GraphDetails {
  constructor(view) {
    this.view = view;
    this.box = element("div", undefined, "sheet details");
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "region");
    this.box.setAttribute("aria-label", "Details");
  }

  show() {
    const { tree, flow, chosen } = this.view.at, last = tree.last[chosen];
    if (chosen <= 0) return this.box.replaceChildren();
    const { failure, facts, stack, actions, commands = [] } = this.view.host.describe(this.view.place, this.view.side, chosen);
    this.box.replaceChildren(
      element("h2", this.view.name()), this.#verdict(tree, chosen), this.#ways(actions), ...this.#text("", failure),
      ...this.#values("comes from", flow.given(chosen, last)), ...this.#values("goes to", flow.taken(chosen, last)),
      this.#facts(facts), ...this.#text("called at", stack), ...commands,
    );
    this.box.scrollTop = 0;
  }

  #verdict(tree, node) {
    const line = element("p"), outcome = tree.outcome(node), inside = tree.last[node] - node;
    const cause = { c: ", the difference begins here", i: ", inherited" }[tree.run.causes[node]] ?? "";
    if (outcome) line.append(element("span", outcome, outcome), cause, inside ? "; " : "");
    if (inside) line.append(`${tree.wrong[node] ? `${tree.wrong[node]} wrong of ` : ""}${plural(inside, "call")} inside`);
    return line;
  }

  #ways(actions) {
    const { view } = this, ways = element("p", undefined, "ways");
    const way = (text, go) => {
      const button = element("button", text);
      button.addEventListener("click", go);
      ways.append(button);
    };
    if (view.partner() > 0) way(view.side === "target" ? "golden call (g)" : "target's call (g)", () => view.goToPartner());
    if (view.twin() > 0) way(`${IS_BACKWARD.test(view.name()) ? "forward" : "backward"} call (b)`, () => view.goTo(view.twin()));
    for (const [, place, node] of view.links()) way(`partner: ${view.graphs[place].place}`, () => view.show(place, "target", node));
    for (const [text, go] of actions) way(text, go);
    if (view.host.isLinked) ways.append(linkButton(view.fragment()));
    return ways;
  }

  #values(title, values) {
    if (!values.length) return [];
    const { tree, chosen } = this.view.at, list = element("ul");
    for (const { node, other, place, otherPlace, known } of values.slice(0, MOST_VALUES)) {
      const item = element("li"), link = element("button", tree.run.names[other], tree.outcome(other));
      link.addEventListener("click", () => this.view.goTo(other));
      item.append(element("span", `${node === chosen ? "" : `${tree.label(node)[0]} `}${place || "a gradient"} `), link);
      if (otherPlace) item.append(element("span", ` ${otherPlace}`));
      if (known) item.append(element("div", known, "known"));
      list.append(item);
    }
    if (values.length > MOST_VALUES) list.append(element("li", `and ${values.length - MOST_VALUES} more`));
    return [element("div", title, "title"), list];
  }

  #facts(facts) {
    const list = element("dl");
    for (const [name, value] of facts) if (value) list.append(element("dt", name), element("dd", value));
    return list;
  }

  #text(title, text) {
    return text ? [element("div", title, "title"), element("pre", text)] : [];
  }
}
