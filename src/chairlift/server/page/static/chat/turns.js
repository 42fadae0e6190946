// The conversation. A turn is a user's {role, text} or an answer's {role, parts, figures, error}; the parts of an answer
// are in the order of the stream:
//
//     {kind: "thought", text, seconds}   {kind: "text", text}   {kind: "call", id, name, arguments, result}
//
// This browser keeps it, until it is begun anew.

const chat = { turns: [], stop: null };
const isLast = (turn) => chat.turns.at(-1) === turn;
const textOf = (turn, kind) => turn.parts.filter((part) => part.kind === kind).map((part) => part.text).join("");
const callsOf = (turn) => turn.parts.filter((part) => part.kind === "call");

const isPart = (part) => typeof (part?.kind === "call" ? part.arguments : part?.text) === "string" && part.kind in PART_VIEWS;
const isTurn = (turn) => (turn?.role === "user" ? typeof turn.text === "string" : Array.isArray(turn?.parts) && turn.parts.every(isPart));

function keepTurns() { kept("chat", chat.turns); }

function loadTurns() {
  const turns = kept("chat");
  if (Array.isArray(turns)) chat.turns = turns.filter(isTurn);
  for (const turn of chat.turns) turn.isDone = true; // one that was broken off will not go on
}

function cutBefore(turn) {
  chat.turns.splice(chat.turns.indexOf(turn));
}

// As the server takes them back. A question that got no answer is left out, unless it is the one that is asked.
function messagesOf(turns, system) {
  const told = system ? [{ role: "system", content: system }] : [];
  turns.forEach((turn, index) => {
    if (turn.role === "assistant") told.push(...answerMessages(turn));
    else if (!turns[index + 1] || turns[index + 1].parts?.length) told.push({ role: "user", content: turn.text });
  });
  return told;
}

// Calls without a result are left out; reasoning belongs to calls that it led to.
function answerMessages(turn) {
  if (!turn.parts.length) return [];
  const calls = callsOf(turn).filter((call) => call.result !== null), content = textOf(turn, "text"), thought = textOf(turn, "thought");
  if (!calls.length) return [{ role: "assistant", content }];
  const told = calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
  return [
    { role: "assistant", content: content || null, ...(thought ? { reasoning_content: thought } : {}), tool_calls: told },
    ...calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: call.result })),
  ];
}
