/* Training against inference, token by token: the log probabilities of both runs. */

let tokenTable = null;

function asToken(label, place) {
  const [target, golden] = ["target", "golden"].map((side) => asNumber(page.tokens[side][place]));
  const apart = target === golden ? 0 : golden - target, { clip } = page.tokens;
  // The trainer's probability divided by the engine's: the weight of importance sampling.
  const ratio = Math.exp(apart), clipped = !(ratio >= 1 - clip && ratio <= 1 + clip);
  return {
    label, place, target, golden, ratio, clipped,
    value: Math.abs(apart), k3: Math.expm1(apart) - apart, outcome: clipped ? "fail" : "pass",
  };
}

// NaN on one side is farther apart than any number.
function distanceOf(token) {
  return typeof token.value === "number" && !Number.isNaN(token.value) ? token.value : Number.MAX_VALUE;
}

// A weight is clipped above 1 + clip and below 1 - clip, at two distances.
function tokenLimits() {
  const clip = page.tokens.clip, words = `clipped: weight above 1 + ${clip}, or below 1 - ${clip}`;
  const above = { value: Math.log1p(clip), text: "", outcome: "fail" };
  return [above, { ...above, value: -Math.log1p(-clip), text: words }];
}

function drawTokens() {
  if (tokenTable) return;
  const tokens = page.tokens.labels.map(asToken), ranked = tokens.toSorted((a, b) => distanceOf(b) - distanceOf(a));
  tokenTable = makeTable(byId("token-scroller"), ranked, [
    { title: "Token", grow: true, of: (token) => token.label },
    { title: "Difference", number: true, of: (token) => token.value },
    { title: "Target", number: true, of: (token) => token.target },
    { title: "Golden", number: true, of: (token) => token.golden },
    { title: "Weight", number: true, of: (token) => token.ratio },
    { title: "KL (k3)", number: true, of: (token) => token.k3 },
    { title: "Clipped", of: (token) => (token.clipped ? "yes" : "") },
  ], { open: (token) => plot.choose(token), label: "Tokens" });
  const plot = new LogPlot(byId("token-plot"), {
    titles: { x: "token, in the order of the requests", y: "|difference| of log probabilities" }, limits: tokenLimits(),
    choose: (token) => { tokenTable.scrollTo(token); tokenTable.choose(token); },
  });
  byId("token-lines").append(...page.tokens.lines.map((line) => element("li", line)));
  plot.draw(tokens);
}
