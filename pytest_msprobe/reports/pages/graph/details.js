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
      element("h2", this.view.name()), this.#verdict(tree, chosen), this.#ways(actions),
      ...(failure ? [element("pre", unbroken(failure))] : []),
      ...this.#values("comes from", flow.given(chosen, last)), ...this.#values("goes to", flow.taken(chosen, last)),
      factsList(facts), ...titledTexts([["called at", stack]]), ...commands,
    );
    this.box.scrollTop = 0;
  }

  #verdict(tree, node) {
    const outcome = GRAPH_OUTCOMES[tree.run.outcomes[node]], inside = tree.last[node] - node, wrong = tree.wrong[node];
    const cause = { culprit: ", the difference begins here", inherited: ", inherited" }[tree.cause(node)] ?? "";
    return element("p", [
      ...(outcome ? [element("span", outcome, outcome), cause, inside ? "; " : ""] : []),
      inside ? `${wrong ? `${wrong} wrong of ` : ""}${plural(inside, "call")} inside` : "",
    ]);
  }

  #ways(actions) {
    const { view } = this, direction = IS_BACKWARD.test(view.name()) ? "forward" : "backward";
    const other = view.side === "target" ? "golden call (g)" : "target's call (g)";
    const ways = [
      ...(view.partner() > 0 ? [[other, () => view.goToPartner()]] : []),
      ...(view.twin() > 0 ? [[`${direction} call (b)`, () => view.choose(view.twin())]] : []),
      ...view.links().map(([place, go]) => [`partner: ${place}`, go]), ...actions,
    ].map(([text, go]) => button(text, go));
    return element("p", [...ways, ...(view.host.isLinked ? [linkButton(view.fragment())] : [])], "ways");
  }

  #values(title, values) {
    if (!values.length) return [];
    const { tree, chosen } = this.view.at, left = values.length - MOST_VALUES;
    const lines = values.slice(0, MOST_VALUES).map(({ node, other, place, otherPlace, known }) => [
      element("span", `${node === chosen ? "" : `${tree.label(node)[0]} `}${place || "a gradient"} `),
      button(tree.run.names[other], () => this.view.choose(other), GRAPH_OUTCOMES[tree.run.outcomes[other]]),
      ...(otherPlace ? [element("span", ` ${otherPlace}`)] : []), ...(known ? [element("div", known, "known")] : []),
    ]);
    return [element("h3", title), listOf([...lines, ...(left > 0 ? [`and ${left} more`] : [])])];
  }
}
