// The replicas, where there are several: a row each; the tiles show all of them together.

let fleet = [];
let watched = null; // the number of the replica whose charts, timeline and blocks are shown

function takeReplicas(replicas) {
  fleet = replicas;
  const shown = replicas.find((each) => each.is_watched)?.replica ?? null;
  if (shown !== null && shown !== watched) {
    if (watched !== null) forgetEngine(); // another engine, perhaps with another clock
    watched = shown;
  }
}

const STATES = { ready: "good", draining: "amber", gone: "red" };

function fleetRow(each) {
  const row = element("tr"), name = element("td", undefined, "name"), state = element("td", undefined, "name");
  name.append(element("b", String(each.replica)), element("span", each.address === "here" ? "" : each.address.replace("tcp://", ""), "soft"));
  state.append(swatch(STATES[each.state]), each.state);
  const meter = element("td", undefined, "meter"), bar = element("i"), part = element("i");
  part.style.width = percent(each.kv_held);
  bar.append(part);
  meter.append(bar, percent(each.kv_held));
  const hits = each.cached_share === null ? "–" : percent(each.cached_share);
  const numbers = [short(each.running), short(each.waiting), short(each.queued_tokens)].map((value) => element("td", value, "number"));
  row.append(name, state, ...numbers, meter, ...[hits, short(each.tokens_per_s), short(each.moved_in)].map((value) => element("td", value, "number")));
  if (each.replica === watched) row.className = "own";
  return row;
}

const total = (name) => fleet.reduce((sum, each) => sum + each[name], 0);

function drawFleet() {
  byId("fleet").hidden = !fleet.length;
  if (!fleet.length) return;
  const ready = fleet.filter((each) => each.state === "ready").length;
  byId("fleet-note").textContent = `${ready} of ${fleet.length} take requests` + (watched === null ? "" : `; charts, timeline and KV blocks below are those of replica ${watched}`);
  byId("fleet-rows").replaceChildren(...fleet.map(fleetRow));
  setTile("running", short(total("running")), "", `in ${ready} replicas`);
  setTile("waiting", short(total("waiting")), "", `${short(total("queued_tokens"))} queued tokens`);
  setTile("output", short(total("tokens_per_s")), "tokens/s", `${short(total("generated_tokens"))} so far`);
  const there = fleet.filter((each) => each.state !== "gone"), held = there.map((each) => each.kv_held);
  setTile("memory", held.length ? percent(held.reduce((a, b) => a + b, 0) / held.length) : "–", "held", held.length ? `at most ${percent(Math.max(...held))}` : "");
  if (watched !== null) for (const name of ["prompt", "ttft", "itl", "device"]) tiles[name].title.textContent = `${TITLES[name]}, #${watched}`;
}
