// The chat: what is written and sent, stopped, begun anew.

function setBusy(stop) {
  chat.stop = stop;
  byId("chat").classList.toggle("busy", Boolean(stop));
  byId("chat-send").hidden = Boolean(stop);
  byId("chat-stop").hidden = !stop;
}

function sendText() {
  const text = byId("chat-text").value.trim();
  if (!text || chat.stop) return;
  if (hasChat() && readTools() === null) return showWrongTools();
  byId("chat-text").value = "";
  say(text);
}

function beginAnew() {
  chat.stop?.abort();
  chat.turns = [];
  keepTurns();
  showTurns();
  byId("chat-text").focus();
}

// A model that makes vectors has nothing to say.
function showKind(about) {
  document.body.dataset.makes = about.makes_text ? "text" : "vectors";
  byId("tools-box").hidden = byId("system-label").hidden = !about.has_chat;
}

function makeChat() {
  loadTurns();
  makeOptions();
  makeTools();
  showTurns();
  submitted(byId("chat-form"), byId("chat-text"), sendText);
  byId("chat-stop").addEventListener("click", () => chat.stop?.abort());
  byId("chat-new").addEventListener("click", beginAnew);
  addEventListener("pagehide", () => { if (chat.stop) keepTurns(); });
}
