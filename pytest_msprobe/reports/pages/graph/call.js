/* A call as outline and boxes show it: its name, what kind it is and what it returned, what is wrong with it. */
function callElement(view, node, isOpen, look = "") {
  const { tree } = view.at, [name, about] = tree.label(node), isBlock = tree.isBlock(node);
  const brief = isOpen ? "" : view.host.brief(view.place, view.side, node), cause = tree.cause(node);
  const hasWarnings = isBlock && !isOpen && tree.worst[node] === "w" && tree.run.outcomes[node] !== "w";
  const inside = tree.wrong[node] || (hasWarnings ? "!" : 0), isList = tree.run.kinds[node] === "c";
  return callBox({
    fold: isBlock ? (isOpen ? "▾" : "▸") : "", name, isList, texts: [about, brief],
    badges: [...(cause ? [element("span", cause, `badge ${cause}`)] : []), ...(inside ? [insideBadge(inside)] : [])],
  }, {
    class: `call ${tree.outcome(node, isOpen)} ${isOpen ? "open" : ""} ${look}`, "data-node": node,
    title: tree.run.names[node],
  });
}

function callBox({ fold, name, isList, texts, badges }, facts) {
  return element("div", [
    element("span", fold, "fold"),
    // What reads from the left is cut at the left in a span that reads from the right; a list is cut at its end.
    element("span", element("bdi", name, "", { dir: "ltr" }), isList ? "name list" : "name"),
    element("span", texts.filter(Boolean).map((text, at) => element("span", text, at ? "brief" : "about")), "texts"),
    element("span", badges, "badges"),
  ], "", facts);
}

/* How many calls in a block are wrong, or "!" where there are warnings alone. */
function insideBadge(wrong) {
  const [look, words] = wrong === "!" ? ["warn", "warnings"] : ["fail", "wrong"];
  return element("span", [String(wrong), element("span", ` ${words} inside`, "words")], `badge ${look}`);
}

/* A click chooses a call; on its sign, or twice, it opens or closes it. */
function onCalls(box, view) {
  box.addEventListener("click", (event) => {
    const call = event.target.closest("[data-node]");
    if (!call) return;
    const node = Number(call.dataset.node), isOpen = call.classList.contains("open");
    if (node !== view.at.chosen) view.choose(node);
    if (event.target.className === "fold" || event.detail === 2) view.fold(node, !isOpen);
  });
}
