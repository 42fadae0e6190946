// How requests ended, at all front ends, and what this engine did, since they began.

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
  answered: () => short(ends.answered), failed: () => short(ends.failed), "client left": () => short(ends.aborted),
  "429, overloaded": () => short(ends.overloaded), "refused otherwise": () => short(ends.rejected),
  "output tokens": (engine) => short(engine.output_tokens), "prompt tokens computed": (engine) => short(engine.prompt_tokens),
  "found in the prefix cache": (engine) => short(engine.cached_tokens), preemptions: (engine) => short(engine.preemptions), steps: (engine) => short(engine.steps),
};
const totalFields = {};

function makeTotals() {
  for (const name of Object.keys(TOTALS)) {
    const pair = element("div");
    totalFields[name] = element("dd", "–");
    pair.append(element("dt", name), totalFields[name]);
    byId("totals").append(pair);
  }
}

function drawTotals() {
  if (state.totals) for (const [name, of] of Object.entries(TOTALS)) totalFields[name].textContent = of(state.totals);
}
