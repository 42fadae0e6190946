// The conversation as it is shown. Nothing but a click opens or folds reasoning.

const views = new Map(); // of each turn, the function that shows what has become of it

function showTurns() {
  views.clear();
  byId("chat-log").replaceChildren();
  chat.turns.forEach(showTurn);
  if (!chat.turns.length) byId("chat-log").append(element("p", "Ask something. Answers are streamed, with their times as this browser sees them; the timeline has the engine's own. This browser keeps the conversation.", "hint"));
  scrollDown();
}

function showTurn(turn) {
  if (!views.size) byId("chat-log").replaceChildren();
  const update = turn.role === "user" ? userView(turn) : answerView(turn);
  for (const each of views.values()) each(); // an earlier answer is not the last any more
  views.set(turn, update);
  update();
  scrollDown();
}

function scrollDown() { byId("chat-log").scrollTop = byId("chat-log").scrollHeight; }

// Follows the end of the text, unless the reader has gone up.
function followed(change) {
  const log = byId("chat-log"), isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  if (isAtEnd) scrollDown();
}

function actions(...buttons) {
  const row = element("div", undefined, "actions");
  row.append(...buttons);
  return row;
}

function userView(turn) {
  const box = element("div", undefined, "asked"), bubble = element("div", turn.text, "turn user");
  box.append(bubble, actions(button("edit", () => edit(turn, box)), copyButton(() => turn.text)));
  byId("chat-log").append(box);
  return () => {};
}

function edit(turn, box) {
  if (chat.stop) return;
  const form = element("form", undefined, "edit"), field = form.appendChild(element("textarea", turn.text));
  field.setAttribute("aria-label", "Message");
  const row = actions(element("button", "Send"), button("cancel", () => { form.replaceWith(...before); }));
  form.append(row);
  const before = [...box.childNodes];
  box.replaceChildren(form);
  field.focus();
  submitted(form, field, () => {
    const text = field.value.trim();
    if (!text || chat.stop) return;
    cutBefore(turn);
    showTurns();
    say(text);
  });
}

const PART_VIEWS = { thought: thoughtView, text: textView, call: callView };

function answerView(turn) {
  const box = element("div", undefined, "answer"), parts = box.appendChild(element("div", undefined, "parts"));
  const error = box.appendChild(element("p", "", "error")), foot = box.appendChild(element("div", undefined, "foot"));
  const figures = foot.appendChild(element("span", "", "figures")), updates = [];
  foot.append(actions(copyButton(() => textOf(turn, "text")), button("regenerate", () => regenerate(turn))));
  byId("chat-log").append(box);
  return () => {
    turn.parts.forEach((part, index) => (updates[index] ??= PART_VIEWS[part.kind](part, turn, parts))());
    parts.classList.toggle("waits", !turn.parts.length && !turn.isDone);
    error.textContent = turn.error ?? "";
    figures.textContent = turn.figures;
  };
}

function thoughtView(part, turn, box) {
  const node = box.appendChild(element("details", undefined, "thought"));
  const title = node.appendChild(element("summary")), body = node.appendChild(element("div"));
  return () => {
    body.textContent = part.text;
    title.textContent = part.seconds !== null ? "Thought for " + seconds(part.seconds) : turn.isDone ? "Thought" : "Thinking…";
  };
}

function textView(part, turn, box) {
  const write = markdownWriter(box.appendChild(element("div", undefined, "turn text")));
  return () => write(part.text);
}
