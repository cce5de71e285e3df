/* Runs of several steps: records by step, in their order; and what is to be said of a run as a whole. */

const stepsOfDumps = wordsOf.dump.map((label) => Number(/(?:^|\/)step(\d+)(?:\/|$)/.exec(label)?.[1] ?? -1));
const stepOf = (row) => stepsOfDumps[columnsOf.dump[row]];

const stepName = (row) => (stepOf(row) < 0 ? "no step" : `step ${stepOf(row)}`);

if (new Set(stepsOfDumps).size > 1) {
  GROUPINGS.push(["Step", stepName, allRows.toSorted((a, b) => stepOf(a) - stepOf(b))]);
}

function runNotes() {
  const lead = (place) => (page.runs.length > 1 ? `${place + 1}: ` : "");
  return page.runs.flatMap((run, place) => run.notes.map((note) => lead(place) + note));
}
