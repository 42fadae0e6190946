// Joins the parts: events, drawing, the header, the settings, the colours.

const THEMES = { auto: "as the system has them", light: "light", dark: "dark" };
const darkness = matchMedia("(prefers-color-scheme: dark)");

function kept(value) {
  try {
    if (value !== undefined) localStorage.setItem("chairlift-theme", value);
    return localStorage.getItem("chairlift-theme") || "auto";
  } catch { return value || "auto"; }
}

function paint(theme) {
  document.documentElement.dataset.theme = theme === "auto" ? (darkness.matches ? "dark" : "light") : theme;
  byId("theme").textContent = theme;
  byId("theme").setAttribute("aria-label", "Colours: " + THEMES[theme]);
  colours = {};
  for (const each of document.querySelectorAll("i[data-colour]")) each.style.background = colour(each.dataset.colour);
  draw();
}

function setStatus(status) {
  document.body.dataset.status = status;
  byId("status-text").textContent = { live: "live", away: "engine starting", lost: "reconnecting" }[status];
  byId("banner").hidden = status !== "away";
  if (status === "away") byId("banner").textContent = fleet.some((each) => each.state !== "gone") ? "The replica that was shown went away." : "The engine went away and is being started again. Requests wait for it.";
}

function takeAbout(about) {
  state.about = about;
  about.arrived = performance.now() / 1000;
  document.title = `${about.models[0]} · chairlift`;
  byId("model").textContent = about.models[0];
  byId("version").textContent = `chairlift ${about.version}`;
  byId("device").textContent = about.device ? `${about.device}, ${about.dtype}` : "–";
  byId("policy").textContent = about.rules[0].value;
  byId("tools-box").hidden = !about.has_chat;
  byId("rules").replaceChildren(...about.rules.map((rule) => {
    const pair = element("div"), what = element("dd");
    what.append(element("b", rule.value), element("span", rule.summary || rule.purpose));
    pair.append(element("dt", rule.option), what);
    return pair;
  }));
  const table = byId("settings-table").tBodies[0];
  table.replaceChildren();
  for (const [name, value, isDefault] of about.settings) {
    const row = table.insertRow();
    row.append(element("td", name, "name soft"), element("td", value, isDefault ? "" : "own"));
  }
}

function take(name, value) {
  if (name === "about") takeAbout(value);
  else if (name === "replicas") takeReplicas(value);
  else if (name === "away") { setStatus("away"); drawFleet(); }
  else {
    setStatus("live");
    const before = chosen === null ? null : JSON.stringify(state.bars.get(chosen)?.spans);
    if (name === "whole") takeWhole(value); else takeNews(value);
    draw();
    if (chosen !== null && JSON.stringify(state.bars.get(chosen)?.spans) !== before) explain();
  }
}

function draw() {
  drawTiles();
  drawFleet();
  drawCharts();
  drawTimeline();
  drawMemory();
  if (state.start) byId("restarts").textContent = String(state.start - 1);
}

function drawClock() {
  const about = state.about;
  if (about) byId("uptime").textContent = duration(about.up_s + performance.now() / 1000 - about.arrived);
}

makeTiles();
makeCharts();
makeTimeline();
makeMemory();
makeChat();
makeTools();
byId("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  paint(kept(names[(names.indexOf(kept()) + 1) % names.length]));
});
darkness.addEventListener("change", () => paint(kept()));
new ResizeObserver(() => draw()).observe(document.querySelector("main"));
paint(kept());
setInterval(() => {
  drawClock();
  if (!document.hidden && state.ticks.length) { drawTimeline(); drawCharts(); }
}, matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 250);
follow(take, setStatus);
