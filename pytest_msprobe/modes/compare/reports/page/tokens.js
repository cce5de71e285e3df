/* Training against inference, token by token: the log probabilities of both runs. */

let tokenPlot = null, tokenTable = null;

class Token {
  constructor(place) { this.place = place; }
  get label() { return page.tokens.labels[this.place]; }
  get target() { return asNumber(page.tokens.target[this.place]); }
  get golden() { return asNumber(page.tokens.golden[this.place]); }
  get value() { return this.target === this.golden ? 0 : Math.abs(this.target - this.golden); }
  get outcome() { return "pass"; }
}

// NaN on one side is farther apart than any number.
function distanceOf(token) {
  return typeof token.value === "number" && !Number.isNaN(token.value) ? token.value : Number.MAX_VALUE;
}

function drawTokens() {
  const tokens = page.tokens.labels.map((_, place) => new Token(place));
  if (!tokenTable) makeTokens(tokens);
  tokenPlot.draw(tokens, tokenTable.chosen());
  tokenTable.draw();
}

function makeTokens(tokens) {
  tokenTable = makeTable(byId("token-scroller"), [
    { title: "Token", width: 260, grow: true, of: (token) => token.label },
    { title: "Difference", width: 120, number: true, of: (token) => token.value },
    { title: "Target", width: 120, number: true, of: (token) => token.target },
    { title: "Golden", width: 120, number: true, of: (token) => token.golden },
  ], { open: (token) => tokenPlot.choose(token), label: "Tokens", name: "tokens" });
  tokenPlot = new LogPlot(byId("token-plot"), byId("token-tip"), {
    titles: { x: "token, in the order of the requests", y: "|difference| of log probabilities" }, limits: [],
    choose: (token) => { tokenTable.scrollTo(token); tokenTable.choose(token); },
  });
  byId("token-lines").replaceChildren(...page.tokens.lines.map((line) => element("li", line)));
  tokenTable.show(tokens.slice().sort((a, b) => distanceOf(b) - distanceOf(a)));
  window.addEventListener("resize", () => { if (!byId("tokens").hidden) tokenPlot.draw(tokens, tokenTable.chosen()); });
}
