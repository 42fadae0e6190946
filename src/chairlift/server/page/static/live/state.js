// The state: the ticks of the last five minutes, the bars of recent requests, the blocks. Times are the engine's.

const SPAN_S = 300;
const state = { about: null, ticks: [], bars: new Map(), every: 1, blocks: null, host: null, depth: 1, start: null, windowS: 30, offset: null, totals: null, overloaded: 0 };
let columns = [];
let barColumns = [];

const named = (names, row) => Object.fromEntries(names.map((name, index) => [name, row[index]]));
const now = () => (state.offset === null ? 0 : performance.now() / 1000 + state.offset);

function synchronise(at) {
  // News are late by their travel time, never early: the largest difference is the best, but clocks drift.
  const seen = at - performance.now() / 1000;
  state.offset = state.offset === null || Math.abs(seen - state.offset) > 5 ? seen : Math.max(seen, state.offset - 0.002);
}

function takeWhole(whole) {
  columns = whole.columns;
  barColumns = whole.bar_columns;
  const ticks = whole.ticks.map((tick) => named(columns, tick));
  const first = ticks.length ? ticks[0].at : whole.now;
  // A restarted engine knows nothing of before; this page may.
  const before = state.ticks.filter((tick) => tick.at < first && tick.at > whole.now - SPAN_S - 5 && tick.at < whole.now);
  state.ticks = [...before, ...ticks];
  state.depth = whole.depth;
  state.windowS = whole.window_s;
  if (whole.start !== state.start) state.bars.clear(); // another engine counts from one again
  const shown = new Set(whole.bars.map((bar) => bar[0]));
  for (const request of [...state.bars.keys()]) if (!shown.has(request)) state.bars.delete(request);
  for (const bar of whole.bars) state.bars.set(bar[0], placed(named(barColumns, bar)));
  state.start = whole.start;
  takeShared(whole);
}

function forgetEngine() {
  state.ticks = [];
  state.bars.clear();
  state.start = state.offset = null;
}

function takeNews(news) {
  for (const tick of news.ticks) state.ticks.push(named(columns, tick));
  if (news.ticks.length) last().overloaded = state.overloaded;
  state.overloaded = 0;
  while (state.ticks.length && state.ticks[0].at < news.now - SPAN_S - 5) state.ticks.shift();
  for (const request of news.gone) state.bars.delete(request);
  for (const bar of news.bars) state.bars.set(bar[0], placed(named(barColumns, bar)));
  takeShared(news);
}

function takeShared(news) {
  state.every = news.every;
  state.totals = news.totals;
  state.blocks = news.blocks;
  state.host = news.host;
  synchronise(news.now);
  for (const [request, bar] of state.bars) if (bar.end !== null && bar.end < news.now - 125) state.bars.delete(request);
}

// A bar keeps its lane; a new one gets the first that is free when it arrives.
function placed(bar) {
  const known = state.bars.get(bar.id);
  if (known) { bar.lane = known.lane; return bar; }
  const taken = new Set();
  for (const other of state.bars.values()) if (other.end === null || other.end > bar.arrival - 0.05) taken.add(other.lane);
  bar.lane = 0;
  while (taken.has(bar.lane)) bar.lane++;
  return bar;
}

const last = () => state.ticks[state.ticks.length - 1] || null;
