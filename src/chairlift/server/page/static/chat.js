// A chat to try the model with; a model without a chat template is given the text to continue.

const chat = { turns: [], stop: null };
const hasChat = () => state.about?.has_chat !== false;

function addToLog(node) {
  byId("chat-log").querySelector(":scope > .hint")?.remove();
  byId("chat-log").append(node);
  node.scrollIntoView({ block: "nearest" });
}

function say(text, tools) {
  closeResults(chat.turns.at(-1));
  chat.turns.push({ role: "user", content: text });
  addToLog(element("div", text, "turn user"));
  ask(tools, byId("tools-choice").value);
}

async function ask(tools, choice) {
  const turns = chat.turns, answer = newAnswer(), figures = element("p", "\u00a0", "figures");
  addToLog(answer.box);
  addToLog(figures);
  chat.stop = new AbortController();
  setBusy(true);
  const run = { tokens: 0, began: performance.now(), first: null, last: null, isCut: false };
  const show = (more = "") => {
    figures.textContent = inWords(run) + more;
    byId("chat-log").scrollTop = byId("chat-log").scrollHeight;
  };
  try {
    const asked = { tools, tool_choice: choice, parallel_tool_calls: byId("tools-several").checked };
    for await (const delta of deltasOf(turns, tools.length ? asked : {}, run)) {
      takeDelta(answer, delta);
      show();
    }
    keep(turns, answer, tools);
    show(run.isCut ? " · max tokens reached" : "");
  } catch (error) {
    if (error.name === "AbortError") { keep(turns, answer, tools); show(" · stopped"); }
    else { endPart(answer); addPart(answer, element("div", error.message, "turn error")); takeBack(turns); }
  }
  setBusy(false);
}

function keep(turns, answer, tools) {
  endPart(answer);
  turns.push(answer);
  // Held to another call, a model would never come to use the results.
  offerResults(answer, () => ask(tools, "auto"));
}

// What was asked last and could not be answered, so that the next question may be.
function takeBack(turns) {
  if (turns.at(-1).role === "user") turns.pop();
  reopenResults(turns.at(-1));
}

function inWords(run) {
  if (run.first === null) return "waiting for the first token";
  const rate = run.tokens > 1 ? ` · ${((1000 * (run.tokens - 1)) / (run.last - run.first)).toFixed(1)} tokens/s` : "";
  return `first token ${seconds((run.first - run.began) / 1000)} · ${run.tokens} tokens${rate}`;
}

async function* deltasOf(turns, asked, run) {
  const temperature = byId("chat-temperature").value;
  const common = { max_tokens: Number(byId("chat-max").value) || 256, stream: true, stream_options: { include_usage: true }, ...(temperature === "" ? {} : { temperature: Number(temperature) }) };
  const isChat = hasChat();
  const path = isChat ? "/v1/chat/completions" : "/v1/completions";
  const messages = turns.flatMap((turn) => (turn.calls ? messagesOf(turn) : [turn]));
  const body = isChat ? { ...common, ...asked, messages } : { ...common, prompt: turns.at(-1).content };
  const answer = await call(path, { method: "POST", signal: chat.stop.signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error((await answer.json().catch(() => null))?.error?.message || "the server answers " + answer.status);
  for await (const event of eventsOf(answer)) {
    if (event.data === "[DONE]") return;
    const chunk = JSON.parse(event.data);
    if (chunk.error) throw new Error(chunk.error.message);
    if (chunk.usage) run.tokens = chunk.usage.completion_tokens; // a chunk may have carried more than one
    const choice = chunk.choices?.[0];
    if (!choice) continue;
    run.tokens += 1;
    run.last = performance.now();
    run.first ??= run.last;
    run.isCut = choice.finish_reason === "length";
    yield isChat ? choice.delta : { content: choice.text };
  }
}

function setBusy(isBusy) {
  byId("chat-send").disabled = isBusy;
  byId("chat-stop").disabled = !isBusy;
  if (!isBusy) chat.stop = null;
}

// By its button, or by Enter in the field.
function submitted(form, field, submit) {
  form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
  });
}

function makeChat() {
  submitted(byId("chat-form"), byId("chat-text"), () => {
    const text = byId("chat-text").value.trim(), tools = hasChat() ? readTools() : [];
    if (!text || chat.stop) return;
    if (tools === null) return showWrongTools();
    byId("chat-text").value = "";
    say(text, tools);
  });
  byId("chat-stop").addEventListener("click", () => chat.stop?.abort());
  byId("chat-clear").addEventListener("click", () => {
    chat.stop?.abort();
    chat.turns = [];
    byId("chat-log").replaceChildren(element("p", "A new conversation.", "hint"));
  });
}
