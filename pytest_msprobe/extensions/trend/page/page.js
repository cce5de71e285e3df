// An API: [name, change, factor, worst by run, words of a command]
const API = { name: 0, change: 1, factor: 2, worst: 3, command: 4 };
// The worst of a run, or null: [margin, outcome, record, judged, atMost]
const WORST = { margin: 0, outcome: 1, record: 2, judged: 3, atMost: 4 };
const CHANGES = ["worse", "new", "better", "gone", ""];
const rankOf = (api) => -CHANGES.indexOf(api[API.change]);

const worstText = (worst) => marginText(worst[WORST.margin], worst[WORST.atMost]);
const outcomeOf = (worst) => (worst && worst[WORST.outcome] !== "pass" ? worst[WORST.outcome] : "");

function factorText(api) {
  const isKnown = ["worse", "better"].includes(api[API.change]) && typeof api[API.factor] === "number";
  return isKnown ? `x${marginText(api[API.factor])}` : "";
}

const table = makeRecords(page.apis, [
  { title: "Change", of: (api) => api[API.change], by: rankOf, look: (api) => api[API.change] },
  { title: page.of === "APIs" ? "API" : "Item", grow: true, name: true, of: (api) => api[API.name] },
  { title: "Factor", number: true, of: factorText, by: (api) => (factorText(api) ? api[API.factor] : "") },
  ...page.runs.map((_, place) => ({
    title: `Run ${place + 1}`, number: true, by: (api) => api[API.worst][place]?.[WORST.margin] ?? "",
    of: ({ [API.worst]: { [place]: worst } }) => (worst ? `${worstText(worst)} ${outcomeOf(worst)}`.trim() : ""),
    look: (api) => outcomeOf(api[API.worst][place]),
  })),
], {
  label: page.of, noun: [page.of, page.of], outcomes: CHANGES, names: { "": "as before" },
  nameOf: (api) => api[API.name], sheetOf, outcomeOf: (api) => api[API.change],
  textOf: (api) => api[API.worst].map((one) => one?.[WORST.record] ?? ""),
});

/* The chosen API. */

const chart = element("div", [], "plot-canvas", { role: "img" });
const plot = new LogPlot(chart, {
  titles: { x: "run", y: "error / allowed" }, limits: [{ value: 1, text: "limit", outcome: "fail" }],
  isLine: true, placeText: (place) => String(place + 1), choose: () => {},
});

function sheetOf(api) {
  const lines = api[API.worst].map((worst, place) => runLine(page.runs[place], worst));
  const again = api[API.command].length ? [["Run the worst record of the last run again", api[API.command]]] : [];
  chart.setAttribute("aria-label", `Margins of ${api[API.name]} by run`);
  plot.draw(api[API.worst].map((worst, place) => ({
    place, value: worst && asNumber(worst[WORST.margin]), outcome: worst?.[WORST.outcome],
    label: `${page.runs[place][1]}${worst ? ` ${worst[WORST.outcome]}` : ""}`,
  })));
  return [chart, element("ol", lines), ...nextSteps({}, again)];
}

function runLine([name, began, device], worst) {
  const judged = worst && `${worstText(worst)} ${worst[WORST.outcome]}, ${worst[WORST.record]}`;
  const text = worst ? `${judged}, the worst of ${worst[WORST.judged]}` : "not judged";
  const title = [name, device].filter(Boolean).join(", ");
  return element("li", `${began}: ${text}`, outcomeOf(worst), { title });
}

const ABOUT = "The largest share of a limit that a record of an API used up: 0 is exact, 1 is at the limit.";
const [first, last] = [page.runs[0], page.runs.at(-1)].map(([, began]) => began);
showHeader(page.title, `${ABOUT} Run 1 is that of ${first}, run ${page.runs.length} that of ${last}.`, page.notes);
table.refresh();
table.followLinks(table.sheets.find, () => table.goTo(page.apis[0]));
