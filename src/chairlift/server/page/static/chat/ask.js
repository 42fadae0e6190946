// An answer as it comes. A model without a chat template is given the text to continue.

const hasChat = () => state.about?.has_chat !== false;

function say(text) {
  const turn = { role: "user", text };
  chat.turns.push(turn);
  showTurn(turn);
  ask(byId("tools-choice").value);
}

function regenerate(turn) {
  if (chat.stop) return;
  cutBefore(turn);
  showTurns();
  ask(chat.turns.at(-1)?.role === "user" ? byId("tools-choice").value : "auto");
}

async function ask(choice) {
  const tools = hasChat() ? readTools() : [];
  if (tools === null) return showWrongTools();
  const asked = [...chat.turns], turn = { role: "assistant", parts: [], figures: "", error: null, isDone: false };
  chat.turns.push(turn);
  showTurn(turn);
  const stop = new AbortController();
  setBusy(stop);
  const run = { tokens: 0, began: performance.now(), first: null, last: null, end: "" };
  const show = () => followed(() => { turn.figures = inWords(run); views.get(turn)?.(); });
  const more = tools.length ? { tools, tool_choice: choice, parallel_tool_calls: byId("tools-several").checked } : {};
  let frame = 0;
  show();
  try {
    for await (const delta of deltasOf(asked, more, run, stop.signal)) {
      takeDelta(turn, delta);
      frame ||= requestAnimationFrame(() => { frame = 0; show(); });
    }
  } catch (error) {
    run.end = error.name === "AbortError" ? " · stopped" : " · failed";
    if (error.name !== "AbortError") turn.error = error.message;
  }
  cancelAnimationFrame(frame);
  endPart(turn);
  turn.isDone = true;
  show();
  if (chat.stop === stop) setBusy(null);
  keepTurns();
}

function takeDelta(turn, delta) {
  if (delta.reasoning_content) lastPart(turn, "thought").text += delta.reasoning_content;
  if (delta.content) lastPart(turn, "text").text += delta.content;
  for (const piece of delta.tool_calls || []) {
    let part = callsOf(turn)[piece.index];
    if (!part) {
      endPart(turn);
      part = { kind: "call", id: piece.id, name: piece.function.name, arguments: "", result: null };
      turn.parts.push(part);
    }
    part.arguments += piece.function.arguments;
  }
}

// Text of another kind begins a new part.
function lastPart(turn, kind) {
  if (turn.parts.at(-1)?.kind !== kind) {
    endPart(turn);
    turn.parts.push({ kind, text: "", seconds: null, began: performance.now() });
  }
  return turn.parts.at(-1);
}

function endPart(turn) {
  const part = turn.parts.at(-1);
  if (part?.kind === "thought") part.seconds ??= (performance.now() - part.began) / 1000;
}

// As this browser saw it. A busy one reads many tokens at once: over the time since the first of them, the rate of such an
// answer would be far above the engine's; over the whole time it is never above.
function inWords(run) {
  if (run.first === null) return run.end ? run.end.slice(3) : "waiting for the first token";
  const first_s = (run.first - run.began) / 1000, total_s = (run.last - run.began) / 1000;
  return `first token ${seconds(first_s)} · ${run.tokens} tokens in ${seconds(total_s)}, ${short(run.tokens / total_s)}/s${run.end}`;
}

async function* deltasOf(turns, more, run, signal) {
  const common = { ...optionsOf(), stream: true, stream_options: { include_usage: true } }, isChat = hasChat();
  const body = isChat ? { ...common, ...more, messages: messagesOf(turns, optionField("system").value.trim()) } : { ...common, prompt: turns.at(-1).text };
  const answer = await send(isChat ? "/v1/chat/completions" : "/v1/completions", body, signal);
  if (!answer.ok) throw new Error(await whyRefused(answer));
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
    if (choice.finish_reason === "length") run.end = " · max tokens reached";
    yield isChat ? choice.delta : { content: choice.text };
  }
}
