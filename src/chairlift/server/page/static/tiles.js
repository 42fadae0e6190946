// The numbers of this moment.

const tiles = {};
const TITLES = {
  running: "running", waiting: "waiting", output: "output", prompt: "prompt", ttft: "first token", tpot: "per output token", memory: "KV cache", device: "device" };

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

function drawTiles() {
  const tick = last();
  if (!tick) return;
  const limits = state.about?.limits;
  const blocks = tick.blank + tick.cached + tick.held;
  setTile("running", short(tick.running), limits ? "of " + short(limits.max_running) : "", `${short(tick.steps / tick.seconds)} steps/s`);
  setTile("waiting", short(tick.waiting), "", tick.preempted ? `${tick.preempted} preempted` : "none preempted");
  setTile("output", short(tick.output_tokens / tick.seconds), "tokens/s", `${short(tick.finished / tick.seconds)} answers/s`);
  setTile("prompt", short(tick.prompt_tokens / tick.seconds), "tokens/s", `${short(tick.cached_tokens / tick.seconds)} cached/s`);
  setTile("ttft", ...inParts(tick.ttft_s), "p50");
  setTile("tpot", ...inParts(tick.tpot_s), "p50");
  tiles.ttft.note.textContent = tick.ttft_s ? `p50; p99 ${seconds(tick.ttft_s[2])}` : "none lately";
  tiles.tpot.note.textContent = tick.tpot_s ? `p50; p99 ${seconds(tick.tpot_s[2])}` : "none lately";
  setTile("memory", blocks ? percent(tick.held / blocks) : "–", "held", `${short(tick.held)} of ${short(blocks)} blocks`);
  const busy = tick.device?.busy_ratio ?? tick.busy_s / tick.seconds;
  setTile("device", percent(busy), "busy", deviceNote(tick.device));
}

const percent = (share) => Math.round(100 * Math.min(share, 1)) + "%";

function deviceNote(device) {
  const { memory_used_bytes: used, memory_capacity_bytes: capacity, power_watts: power } = device ?? {};
  const known = [capacity ? `${gib(used)}/${gib(capacity)} GiB` : "", power ? `${short(Math.round(power))} W` : ""].filter(Boolean);
  return known.join(", ") || "computing steps";
}

const gib = (bytes) => Math.round(bytes / 2 ** 30);

const inParts = (percentiles) => (percentiles ? seconds(percentiles[0]).split(" ") : ["–", ""]);
