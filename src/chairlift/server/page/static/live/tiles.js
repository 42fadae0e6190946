// The numbers of this moment.

const tiles = {};
const TITLES = {
  running: "running", waiting: "waiting", output: "output", prompt: "prompt", errors: "errors",
  ttft: "first token", itl: "between tokens", memory: "KV cache", device: "device", overloaded: "refused, 429" };

function makeTiles() {
  for (const [name, title] of Object.entries(TITLES)) {
    const tile = element("div", undefined, "tile");
    tiles[name] = { title: element("span", title), value: element("b", "–"), note: element("em", "\u00a0") };
    tile.append(tiles[name].title, tiles[name].value, tiles[name].note);
    byId("tiles").append(tile);
  }
}

function setTile(name, value, unit, note) {
  const tile = tiles[name];
  tile.value.textContent = value;
  if (unit) tile.value.append(element("small", unit));
  tile.note.textContent = note || "\u00a0";
}

// Of models whose layers do not all keep all tokens: found for those that do, computed again for the others.
const missedNote = (tick) => (tick.missed_tokens ? `, ${short(tick.missed_tokens / tick.seconds)} missed/s` : "");

function drawTiles() {
  const tick = last();
  if (!tick) return;
  const limits = state.about?.limits;
  const blocks = tick.blank + tick.cached + tick.held;
  setTile("running", short(tick.running), limits ? "of " + short(limits.max_running) : "", `${short(tick.steps / tick.seconds)} steps/s`);
  setTile("waiting", short(tick.waiting), "", tick.waiting ? `longest ${seconds(tick.longest_wait_s)}` : tick.preempted ? `${tick.preempted} preempted` : "none preempted");
  setTile("output", short(tick.output_tokens / tick.seconds), "tokens/s", `${short(tick.finished / tick.seconds)} answers/s`);
  setTile("prompt", short(tick.prompt_tokens / tick.seconds), "tokens/s", `${short(tick.cached_tokens / tick.seconds)} cached/s` + missedNote(tick));
  for (const name of ["ttft", "itl"]) {
    const found = tick[name + "_s"];
    setTile(name, ...inParts(found), found ? `p50; p99 ${seconds(found[2])}` : "none lately");
  }
  drawEnds();
  setTile("memory", blocks ? percent(heldShare(tick)) : "–", "held", `${short(tick.held)} of ${short(blocks)} blocks`);
  setTile("device", percent(busyShare(tick)), "busy", deviceNote(tick.device));
}

// Of the requests that ended in the last 30 s at any front end.
function drawEnds() {
  const failed = lately("failed"), all = failed + lately("answered");
  setTile("errors", all ? percentOf(failed, all) : "0%", "of answers", `${short(ends.failed)} of ${short(ends.failed + ends.answered)} so far`);
  setTile("overloaded", short(lately("overloaded") / RISE_S), "per second", `${short(ends.overloaded)} so far`);
}

const percentOf = (part, all) => (part && part / all < 0.1 ? ((100 * part) / all).toFixed(1) + "%" : percent(part / all));

function deviceNote(device) {
  const { memory_used_bytes: used, memory_capacity_bytes: capacity, power_watts: power } = device ?? {};
  const known = [capacity ? `${gib(used)}/${gib(capacity)} GiB` : "", power ? `${short(Math.round(power))} W` : ""].filter(Boolean);
  return known.join(", ") || "computing steps";
}

const gib = (bytes) => Math.round(bytes / 2 ** 30);

function inParts(percentiles) {
  const [value, unit = ""] = percentiles ? seconds(percentiles[0]).split(" ") : ["–"];
  return [value, unit];
}
