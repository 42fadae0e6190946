// Joins the parts: events, drawing, the header, the views.

function setStatus(status) {
  document.body.dataset.status = status;
  byId("status-text").textContent = { live: "live", away: "engine starting", lost: "reconnecting" }[status];
  byId("banner").hidden = status !== "away";
  if (status === "away") byId("banner").textContent = fleet.some((each) => each.state !== "gone") ? "The replica that was shown went away." : "The engine is being started.";
}

function takeAbout(about) {
  state.about = about;
  about.arrived = performance.now() / 1000;
  document.title = `${about.models[0]} · chairlift`;
  byId("model").textContent = about.models[0];
  byId("version").textContent = `chairlift ${about.version}`;
  byId("device").textContent = about.device ? `${about.device}, ${about.dtype}` : "–";
  byId("policy").textContent = about.rules[0].value;
  if (!about.limits) setStatus("away");
  showKind(about);
  showRules(about.rules);
  showSettings(about.settings);
  listModels();
}

function take(name, value) {
  if (name === "about") takeAbout(value);
  else if (name === "totals") takeTotals(value);
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
  drawTotals();
  if (state.start) byId("restarts").textContent = String(state.start - 1);
}

function drawClock() {
  const about = state.about;
  if (about) byId("uptime").textContent = duration(about.up_s + performance.now() / 1000 - about.arrived);
}

// The chat has the page to itself under #chat.
function showView() {
  const view = location.hash === "#chat" ? "chat" : "overview";
  document.body.dataset.view = view;
  for (const name of ["overview", "chat"]) byId("view-" + name).setAttribute("aria-current", String(name === view));
  if (view === "chat") byId("chat-text").focus(); else draw();
}

makeTiles();
makeCharts();
makeTimeline();
makeMemory();
makeTotals();
makeKey();
makeChat();
makeTheme(() => { repaint(); draw(); });
addEventListener("hashchange", showView);
showView();
new ResizeObserver(() => draw()).observe(document.querySelector("main"));
setInterval(() => {
  drawClock();
  if (!document.hidden && state.ticks.length) { drawTimeline(); drawCharts(); }
}, matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 250);
follow(take, setStatus);
