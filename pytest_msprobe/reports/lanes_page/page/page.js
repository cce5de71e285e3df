const order = (a, b) => columnOf[a] - columnOf[b] || laneOf[a] - laneOf[b];
const begins = (call) => beginnings.has(call);
const ranked = allCalls.slice().sort((a, b) => severity(b) - severity(a) || begins(b) - begins(a) || order(a, b));
const ALL_LANES = -1;
let chosenLane = ALL_LANES;

const table = makeRecords(ranked, [
  { title: "Result", of: outcomeOf, by: severity, look: outcomeOf },
  { title: "Call", name: true, of: (call) => nameOf[call] },
  { title: "Why", grow: true, of: (call) => word("why", call) },
  { title: page.kindTitle, of: (call) => word("kind", call) },
  { title: "Rank", of: rankOf },
  { title: "#", number: true, of: (call) => columnOf[call] },
], {
  open: show, label: "Calls", noun: ["call"], outcomes: OUTCOMES, outcomeOf,
  names: { "": OUTCOME_WORDS[""] },
  textOf: (call) => [nameOf[call], word("why", call), word("kind", call), rankOf(call)],
  isWanted: (call) => chosenLane === ALL_LANES || laneOf[call] === chosenLane,
  forget: () => { byId("lane").value = chosenLane = ALL_LANES; },
});

function sentenceOf(call) {
  const parts = [`${rankOf(call)}, ${nameOf[call]}`, word("kind", call) || outcomeOf(call), word("why", call)];
  return parts.filter(Boolean).join(": ");
}

/* One call in full. */

function show(call) {
  showSheet(sheetOf(call), fragmentOf(call));
  grid.goTo(placeOf(call));
}

function sheetOf(call) {
  const outcome = outcomeOf(call), isMissing = severity(call) === MISSING;
  const [lane, record] = page.items[call] ?? [laneOf[call], nameOf[call]];
  const facts = [
    ["rank", rankOf(call)], ["result", outcome || "not judged", outcome],
    [page.kindTitle.toLowerCase(), word("kind", call)], ["why", word("why", call)],
  ];
  const given = page.arrows.filter(([from]) => from === call), taken = page.arrows.filter(([, to]) => to === call);
  return [
    element("h2", nameOf[call]), linkButton(fragmentOf(call)),
    ...(begins(call) ? [element("p", "It begins here.", "fail")] : []),
    ...(isMissing ? [element("p", "This rank has no such call.")] : []),
    factsList(facts), ...(outcome && !isMissing ? nextSteps({ dump: page.dumps[lane], record }) : []),
    ...titledTexts(page.details[call] ?? []),
    ...otherCalls("Gave it to", given.map(([, to]) => to)),
    ...otherCalls("Was given it by", taken.map(([from]) => from)),
    ...otherCalls("Together with", (joinsOf.get(call) ?? []).filter((other) => other !== call)),
  ];
}

function otherCalls(title, calls) {
  const lead = (call) => button(`${rankOf(call)}, ${nameOf[call]}`, () => table.goTo(call), outcomeOf(call));
  return calls.length ? [element("h3", title), listOf(calls.map(lead), "others")] : [];
}

function nextWrong(step) {
  const wrong = allCalls.filter((call) => severity(call) >= MISSING).sort(order), at = wrong.indexOf(table.chosen());
  if (wrong.length) table.goTo(wrong[(at + step + wrong.length) % wrong.length]);
}

function legend() {
  const met = OUTCOMES.filter((outcome) => page.words.outcome.includes(outcome));
  const sample = (outcome) => element("i", [], outcome, outcome ? {} : { style: "color: var(--line)" });
  const left = Math.max(0, page.arrows.length - MOST_LINES) + Math.max(0, wrongJoins.length - MOST_LINES);
  byId("legend").before(grid.buttons());
  byId("legend").append(
    ...met.map((outcome) => element("span", [sample(outcome), OUTCOME_WORDS[outcome]])),
    ...(page.begins.length ? [element("span", "▼ it begins here")] : []),
    ...(left ? [element("span", `${plural(left, "line")} left out: an open call names its own`)] : []),
  );
}

showHeader(page.title, page.about, page.notes);
choices(byId("lane"), ["all ranks", ...page.lanes].map((name, place) => [name, place - 1]), (lane) => {
  chosenLane = Number(lane);
  table.refresh();
});
byId("lane").hidden = page.lanes.length < 2;
legend();
table.refresh();
const first = page.begins[0] ?? ranked.find((call) => severity(call) >= severityAs("warn"));
const nothing = element("p", "Nothing is wrong. Choose a call to see what is known of it.", "soft");
table.followLinks(linkedCall, () => (first === undefined ? showSheet([nothing], "") : table.goTo(first)));
