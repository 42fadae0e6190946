// A chat to try the model with; a model without a chat template is given the text to continue.

const chat = { messages: [], stop: null };

function addTurn(text, kind) {
  byId("chat-log").querySelector(".hint")?.remove();
  const turn = byId("chat-log").appendChild(element("div", text, "turn " + kind));
  turn.scrollIntoView({ block: "nearest" });
  return turn;
}

async function send(text) {
  chat.messages.push({ role: "user", content: text });
  addTurn(text, "user");
  const turn = addTurn("…", "answer");
  const figures = byId("chat-log").appendChild(element("p", "\u00a0", "figures"));
  chat.stop = new AbortController();
  setBusy(true);
  const run = { text: "", tokens: 0, began: performance.now(), first: null, last: null };
  const show = () => {
    turn.textContent = run.text || "…";
    figures.textContent = inWords(run);
    byId("chat-log").scrollTop = byId("chat-log").scrollHeight;
  };
  try {
    for await (const piece of answerOf(text, run)) {
      run.text += piece;
      show();
    }
    show();
    chat.messages.push({ role: "assistant", content: run.text });
  } catch (error) {
    if (error.name === "AbortError") { figures.textContent = inWords(run) + " · stopped"; chat.messages.push({ role: "assistant", content: run.text }); }
    else { turn.classList.add("error"); turn.textContent = (run.text ? run.text + "\n" : "") + error.message; chat.messages.pop(); }
  }
  setBusy(false);
}

function inWords(run) {
  if (run.first === null) return "waiting for the first token";
  const rate = run.tokens > 1 ? ` · ${((1000 * (run.tokens - 1)) / (run.last - run.first)).toFixed(1)} tokens/s` : "";
  return `first token ${seconds((run.first - run.began) / 1000)} · ${run.tokens} tokens${rate}`;
}

async function* answerOf(text, run) {
  const temperature = byId("chat-temperature").value;
  const common = { max_tokens: Number(byId("chat-max").value) || 256, stream: true, stream_options: { include_usage: true }, ...(temperature === "" ? {} : { temperature: Number(temperature) }) };
  const isChat = state.about?.has_chat !== false;
  const path = isChat ? "/v1/chat/completions" : "/v1/completions";
  const body = isChat ? { ...common, messages: chat.messages } : { ...common, prompt: text };
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
    yield (isChat ? choice.delta.content : choice.text) || "";
  }
}

function setBusy(isBusy) {
  byId("chat-send").disabled = isBusy;
  byId("chat-stop").disabled = !isBusy;
  if (!isBusy) chat.stop = null;
}

function makeChat() {
  const submit = () => {
    const text = byId("chat-text").value.trim();
    if (!text || chat.stop) return;
    byId("chat-text").value = "";
    send(text);
  };
  byId("chat-form").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  byId("chat-text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
  });
  byId("chat-stop").addEventListener("click", () => chat.stop?.abort());
  byId("chat-clear").addEventListener("click", () => {
    chat.stop?.abort();
    chat.messages = [];
    byId("chat-log").replaceChildren(element("p", "A new conversation.", "hint"));
  });
}
