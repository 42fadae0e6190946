// Which charts there are, and what of a tick each shows.

const milliseconds = (value) => (value >= 0.01 || value === 0 ? short(Math.round(1000 * value)) : (1000 * value).toFixed(1));
const level = (name) => (tick) => tick[name];
const perSecond = (name) => (tick) => tick[name] / tick.seconds;
const percentile = (name, index) => (tick) => (tick[name] ? tick[name][index] : null);
const perStep = (name) => (tick) => (tick.steps ? tick[name] / tick.steps : 0);
const spread = (name) => ["p50", "p90", "p99"].map((share, index) => ({ name: share, colour: share, of: percentile(name, index) }));
const busyShare = (tick) => Math.min(1, tick.device?.busy_ratio ?? tick.busy_s / tick.seconds);
const heldShare = (tick) => tick.held / (tick.blank + tick.cached + tick.held || 1);
const memoryShare = (tick) => (tick.device?.memory_capacity_bytes ? tick.device.memory_used_bytes / tick.device.memory_capacity_bytes : null);

function makeCharts() {
  new Chart({ title: "Running and waiting", unit: "requests", whole: true, least: 4, series: [
    { name: "running", colour: "blue", of: level("running") },
    { name: "waiting", colour: "amber", of: level("waiting") },
    { name: "preempted", colour: "red", of: level("preempted") }] });
  new Chart({ title: "Tokens", unit: "per second", least: 10, series: [
    { name: "output", colour: "blue", of: perSecond("output_tokens") },
    { name: "prompt", colour: "violet", of: perSecond("prompt_tokens") },
    { name: "cached", colour: "teal", of: perSecond("cached_tokens") }] });
  new Chart({ title: "Time to first token", unit: "last 30 s", show: seconds, least: 0.001, series: [
    ...spread("ttft_s"), { name: "waits", colour: "amber", of: (tick) => tick.longest_wait_s || null }] });
  new Chart({ title: "Time between tokens", unit: "last 30 s", show: seconds, least: 0.001, series: spread("itl_s") });
  new Chart({ title: "Requests that end", unit: "per second", least: 1, series: [
    { name: "answered", colour: "blue", of: perSecond("finished") },
    { name: "failed", colour: "red", of: perSecond("failed") },
    { name: "aborted", colour: "slate", of: perSecond("aborted") },
    { name: "429", colour: "amber", of: (tick) => (tick.overloaded === undefined ? null : tick.overloaded / tick.seconds) }] });
  new Chart({ title: "Device", unit: "share", show: percent, least: 1, most: 1, series: [
    { name: "busy", colour: "blue", of: busyShare },
    { name: "memory", colour: "violet", of: memoryShare },
    { name: "KV held", colour: "teal", of: heldShare }] });
  new Chart({ title: "Time per output token", unit: "ended in 30 s", show: seconds, least: 0.001, series: spread("tpot_s") });
  new Chart({ title: "A step", unit: "ms, mean", show: milliseconds, stacked: true, least: 0.0005, series: [
    { name: "schedule", colour: "amber", of: perStep("schedule_s") },
    { name: "prepare", colour: "violet", of: perStep("prepare_s") },
    { name: "compute", colour: "blue", of: perStep("compute_s") },
    { name: "commit", colour: "teal", of: perStep("commit_s") },
    { name: "other", colour: "slate", of: perStep("other_s") }] });
}
