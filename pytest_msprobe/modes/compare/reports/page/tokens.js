/* Training against inference, token by token: the log probabilities of both runs. */

let tokenPlot = null, tokenTable = null;

class Token {
  constructor(place) { this.place = place; }
  get label() { return page.tokens.labels[this.place]; }
  get target() { return asNumber(page.tokens.target[this.place]); }
  get golden() { return asNumber(page.tokens.golden[this.place]); }
  get value() { return this.target === this.golden ? 0 : Math.abs(this.target - this.golden); }
  // The trainer's probability divided by the engine's: the weight of importance sampling.
  get ratio() { return this.target === this.golden ? 1 : Math.exp(this.golden - this.target); }
  get k3() { return this.target === this.golden ? 0 : Math.expm1(this.golden - this.target) - (this.golden - this.target); }
  get clipped() { return !(this.ratio >= 1 - page.tokens.clip && this.ratio <= 1 + page.tokens.clip); }
  get outcome() { return this.clipped ? "fail" : "pass"; }
}

// NaN on one side is farther apart than any number.
function distanceOf(token) {
  return typeof token.value === "number" && !Number.isNaN(token.value) ? token.value : Number.MAX_VALUE;
}

// A weight is clipped above 1 + clip and below 1 - clip, at two distances.
function tokenLimits() {
  const clip = page.tokens.clip, words = `clipped: weight above 1 + ${clip}, or below 1 - ${clip}`;
  return [[Math.log1p(clip), ""], [-Math.log1p(-clip), words]].map(([value, text]) => ({ value, text, outcome: "fail" }));
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
    { title: "Weight", width: 110, number: true, of: (token) => token.ratio },
    { title: "KL (k3)", width: 110, number: true, of: (token) => token.k3 },
    { title: "Clipped", width: 80, of: (token) => (token.clipped ? "yes" : "") },
  ], { open: (token) => tokenPlot.choose(token), label: "Tokens", name: "tokens" });
  tokenPlot = new LogPlot(byId("token-plot"), {
    titles: { x: "token, in the order of the requests", y: "|difference| of log probabilities" }, limits: tokenLimits(),
    choose: (token) => { tokenTable.scrollTo(token); tokenTable.choose(token); },
  });
  byId("token-lines").replaceChildren(...page.tokens.lines.map((line) => element("li", line)));
  tokenTable.show(tokens.slice().sort((a, b) => distanceOf(b) - distanceOf(a)));
  window.addEventListener("resize", () => { if (!byId("tokens").hidden) tokenPlot.draw(tokens, tokenTable.chosen()); });
}
