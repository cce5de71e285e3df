/* What is known of the chosen call: its verdict, where to go from it, where its values come from and go to. */

const MOST_VALUES = 30;

class GraphDetails {
  constructor(view) {
    this.view = view;
    this.box = element("div", [], "sheet details", { tabindex: 0, role: "region", "aria-label": "Details" });
  }

  show() {
    const { tree, flow, chosen } = this.view.at, last = tree.last[chosen];
    if (chosen <= 0) return this.box.replaceChildren();
    const known = this.view.host.describe(this.view.place, this.view.side, chosen);
    const { failure = "", facts = [], stack = "", actions = [], commands = [] } = known;
    this.box.replaceChildren(
      element("h2", this.view.name()), this.#verdict(tree, chosen), this.#ways(actions), ...this.#text("", failure),
      ...this.#values("comes from", flow.given(chosen, last)), ...this.#values("goes to", flow.taken(chosen, last)),
      factsList(facts), ...this.#text("called at", stack), ...commands,
    );
    this.box.scrollTop = 0;
  }

  #verdict(tree, node) {
    const outcome = tree.outcome(node), inside = tree.last[node] - node, wrong = tree.wrong[node];
    const cause = { c: ", the difference begins here", i: ", inherited" }[tree.run.causes[node]] ?? "";
    return element("p", [
      ...(outcome ? [element("span", outcome, outcome), cause, inside ? "; " : ""] : []),
      inside ? `${wrong ? `${wrong} wrong of ` : ""}${plural(inside, "call")} inside` : "",
    ]);
  }

  #ways(actions) {
    const { view } = this, direction = IS_BACKWARD.test(view.name()) ? "forward" : "backward";
    const other = view.side === "target" ? "golden call (g)" : "target's call (g)";
    const partnerOf = ([, place, node]) => {
      return [`partner: ${view.graphs[place].place}`, () => view.show(place, "target", node)];
    };
    const ways = [
      ...(view.partner() > 0 ? [[other, () => view.goToPartner()]] : []),
      ...(view.twin() > 0 ? [[`${direction} call (b)`, () => view.goTo(view.twin())]] : []),
      ...view.links().map(partnerOf), ...actions,
    ].map(([text, go]) => button(text, go));
    return element("p", [...ways, ...(view.host.isLinked ? [linkButton(view.fragment())] : [])], "ways");
  }

  #values(title, values) {
    if (!values.length) return [];
    const { tree, chosen } = this.view.at, left = values.length - MOST_VALUES;
    const lines = values.slice(0, MOST_VALUES).map(({ node, other, place, otherPlace, known }) => [
      element("span", `${node === chosen ? "" : `${tree.label(node)[0]} `}${place || "a gradient"} `),
      button(tree.run.names[other], () => this.view.goTo(other), tree.outcome(other)),
      ...(otherPlace ? [element("span", ` ${otherPlace}`)] : []), ...(known ? [element("div", known, "known")] : []),
    ]);
    return [element("div", title, "title"), listOf([...lines, ...(left > 0 ? [`and ${left} more`] : [])])];
  }

  #text(title, text) {
    return text ? [element("div", title, "title"), element("pre", text)] : [];
  }
}
