// Recent requests as bars, and the latency breakdown of the chosen one.

const KINDS = { q: ["queued", "amber"], p: ["prompt", "violet"], d: ["decoding", "blue"], o: ["preempted", "red"], a: ["computed again", "pink"] };
const PARTS = { queued: "amber", prompt: "violet", decoding: "blue", "passed by": "slate", "preempted": "red", "computed again": "pink" };
const EDGE = 18; // for the axis
let chosen = null;
let lanes = 8;

function visibleBars() {
  const start = now() - Number(byId("span").value);
  return [...state.bars.values()].filter((bar) => bar.end === null || bar.end > start);
}

function laneHeight(frame) { return Math.max(6, Math.min(18, Math.floor((frame.clientHeight - EDGE - 4) / lanes))); }

function drawTimeline() {
  const frame = byId("bars-frame"), bars = visibleBars();
  lanes = Math.max(8, ...bars.map((bar) => bar.lane + 1));
  const each = laneHeight(frame);
  const high = Math.max(frame.clientHeight - 1, lanes * each + EDGE);
  const canvas = byId("bars");
  canvas.style.height = high + "px";
  const { context, width } = pen(canvas, high);
  const end = now(), span = Number(byId("span").value);
  const x = (at) => ((at - end + span) / span) * width;
  context.strokeStyle = colour("grid");
  context.fillStyle = colour("faint");
  const step = span / (width > 420 ? 6 : 3);
  for (let back = 0; back <= span; back += step) {
    const at = Math.round(x(end - back)) + 0.5;
    context.beginPath(); context.moveTo(at, EDGE); context.lineTo(at, high); context.stroke();
    context.textAlign = back === 0 ? "right" : back === span ? "left" : "center";
    context.fillText(back ? `−${back} s` : "now", Math.min(width, Math.max(0, at)), 11);
  }
  for (const bar of bars) drawBar(context, bar, x, end, EDGE + bar.lane * each, Math.max(4, each - (each > 9 ? 3 : 2)));
  byId("requests-note").textContent = state.every > 1
    ? `${bars.length} shown, one in ${state.every} of all` : `${bars.length} shown, all there are`;
}

function drawBar(context, bar, x, end, top, height) {
  let from = bar.arrival;
  const spans = bar.state ? [...bar.spans, [bar.state, end]] : bar.spans;
  const first = x(bar.arrival), over = x(bar.end ?? end);
  for (const [kind, until] of spans) {
    const left = x(from), right = x(until);
    context.fillStyle = colour(KINDS[kind][1]);
    const wide = Math.max(1, right - left - (kind === "p" || kind === "a" ? 0.8 : 0));
    if (right > -2) context.fillRect(left, top, wide, height);
    from = until;
  }
  if (bar.finish === "error" || bar.finish === "abort" || bar.finish === "timeout") {
    context.fillStyle = colour("ink");
    context.fillRect(over - 2, top - 1, 2, height + 2);
  }
  if (chosen === bar.id) {
    context.strokeStyle = colour("ink");
    context.lineWidth = 1.5;
    context.strokeRect(first - 1.5, top - 1.5, Math.max(4, over - first) + 3, height + 3);
    context.lineWidth = 1;
  }
}

function barAt(event) {
  const box = byId("bars").getBoundingClientRect(), span = Number(byId("span").value);
  const lane = Math.floor((event.clientY - box.top - EDGE) / laneHeight(byId("bars-frame")));
  const at = now() - span + ((event.clientX - box.left) / box.width) * span;
  const slack = (4 / box.width) * span;
  return visibleBars().filter((bar) => bar.lane === lane && bar.arrival - slack <= at && (bar.end ?? Infinity) + slack >= at).pop();
}

function chooseNext(way) {
  const bars = visibleBars().sort((a, b) => a.arrival - b.arrival || a.id - b.id);
  if (!bars.length) return;
  const index = bars.findIndex((bar) => bar.id === chosen);
  choose(bars[index < 0 ? bars.length - 1 : Math.max(0, Math.min(bars.length - 1, index + way))].id);
}

function choose(request) {
  chosen = request;
  drawTimeline();
  return explain();
}

async function explain() {
  const request = chosen;
  const answer = await call("/live/requests/" + request).catch(() => null);
  if (request !== chosen) return;
  if (!answer || !answer.ok) {
    byId("why-title").textContent = "Request " + request;
    byId("why-body").replaceChildren(element("p", "The engine does not remember this request any more.", "hint"));
    return;
  }
  const breakdown = await answer.json();
  if (request === chosen) showBreakdown(named(barColumns, breakdown.bar), breakdown);
}

function showBreakdown(bar, breakdown) {
  byId("why-title").textContent = "Request " + bar.id + (breakdown.user ? " of " + breakdown.user : "");
  const total = breakdown.parts.reduce((sum, [, time]) => sum + time, 0) || 1;
  const split = element("div", undefined, "split");
  const table = element("table"), body = table.appendChild(element("tbody"));
  for (const [name, time, detail] of breakdown.parts) {
    const part = swatch(PARTS[name]);
    part.style.flex = String(time / total);
    split.append(part);
    const row = body.insertRow();
    const cells = [["", "name"], [seconds(time), "number"], [Math.round((100 * time) / total) + "%", "number"], [detail, "soft"]];
    for (const [text, kind] of cells) row.append(element("td", text, kind));
    row.cells[0].append(swatch(PARTS[name]), name);
  }
  const numbers = element("dl", undefined, "numbers");
  const gaps = bar.output > 1 && bar.end !== null && bar.first !== null ? (bar.end - bar.first) / (bar.output - 1) : null;
  for (const [name, value] of [["prompt", short(bar.prompt)], ["from the cache", short(bar.cached)], ["output", short(bar.output)],
    ["first token", bar.first === null ? "–" : seconds(bar.first - bar.arrival)], ["per output token", seconds(gaps)], ["preempted", short(breakdown.preempted)]]) {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    numbers.append(pair);
  }
  const words = breakdown.sentences.map((text) => element("p", text));
  byId("why-body").replaceChildren(...breakdown.headline.map((text) => element("p", text, "headline")), split, ...words, table, numbers);
}

function makeTimeline() {
  for (const [name, hue] of Object.values(KINDS)) {
    const item = element("li");
    item.append(swatch(hue), name);
    byId("requests-key").append(item);
  }
  const canvas = byId("bars");
  canvas.addEventListener("click", (event) => { const bar = barAt(event); if (bar) choose(bar.id); });
  canvas.addEventListener("pointermove", (event) => {
    const bar = barAt(event);
    canvas.title = bar ? `request ${bar.id}: ${bar.prompt} prompt tokens, ${bar.end === null ? "in flight" : seconds(bar.end - bar.arrival)}` : "";
  });
  canvas.addEventListener("keydown", (event) => {
    const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (way) { event.preventDefault(); chooseNext(way); }
    if (event.key === "Enter" && chosen !== null) explain();
  });
  byId("span").addEventListener("change", drawTimeline);
  byId("slowest").addEventListener("click", () => {
    const ends = (bar) => (bar.end ?? now()) - bar.arrival;
    const slowest = visibleBars().sort((a, b) => ends(b) - ends(a))[0];
    if (slowest) choose(slowest.id).then(() => byId("why").scrollIntoView({ block: "nearest" }));
  });
}
