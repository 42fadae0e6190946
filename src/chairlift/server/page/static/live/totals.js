// How requests ended, at all front ends, since the server began, and what this engine did since it did.

const ends = { answered: 0, failed: 0, aborted: 0, overloaded: 0, rejected: 0 };
const rises = []; // {at, ...what was added to each}: of the last 30 s, by this page's clock
const RISE_S = 30;
let hasTotals = false;

function takeTotals(totals) {
  if (hasTotals) {
    const rise = { at: performance.now() / 1000 };
    for (const name of Object.keys(ends)) rise[name] = Math.max(0, totals[name] - ends[name]);
    rises.push(rise);
    while (rises[0].at < rise.at - RISE_S) rises.shift();
    state.overloaded += rise.overloaded; // the next tick has it
  }
  hasTotals = true;
  Object.assign(ends, totals);
}

const lately = (name) => rises.reduce((sum, rise) => sum + rise[name], 0);

const TOTALS = {
  ends: {
    answered: () => short(ends.answered), failed: () => short(ends.failed), "client left": () => short(ends.aborted),
    "429, overloaded": () => short(ends.overloaded), "refused otherwise": () => short(ends.rejected),
  },
  done: {
    "output tokens": (engine) => short(engine.output_tokens), "prompt tokens computed": (engine) => short(engine.prompt_tokens),
    "found in the prefix cache": (engine) => short(engine.cached_tokens), "missed there, for want of a state": (engine) => short(engine.missed_tokens), preemptions: (engine) => short(engine.preemptions), steps: (engine) => short(engine.steps),
  },
};
const totalFields = []; // [its place, what it shows]

function makeTotals() {
  for (const [list, totals] of Object.entries(TOTALS)) for (const [name, of] of Object.entries(totals)) {
    const pair = element("div"), field = element("dd", "–");
    totalFields.push([field, of]);
    pair.append(element("dt", name), field);
    byId(list).append(pair);
  }
}

function drawTotals() {
  if (state.totals) for (const [field, of] of totalFields) field.textContent = of(state.totals);
}
