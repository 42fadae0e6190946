// An answer as it comes: reasoning folded, content, and calls as cards, in the order of the stream.

function newAnswer() {
  const box = element("div", undefined, "answer"), waiting = box.appendChild(element("div", "…", "turn"));
  return { role: "assistant", box, waiting, part: null, content: "", reasoning: "", calls: [] };
}

function takeDelta(answer, delta) {
  if (delta.reasoning_content) {
    answer.reasoning += delta.reasoning_content;
    write(answer, "thought", delta.reasoning_content);
  }
  if (delta.content) {
    answer.content += delta.content;
    write(answer, "turn", delta.content);
  }
  for (const piece of delta.tool_calls || []) {
    const call = (answer.calls[piece.index] ??= addCall(answer, piece));
    call.arguments += piece.function.arguments;
    call.body.append(call.indent(piece.function.arguments));
  }
}

// Text of another kind begins a new part. Nothing but a click opens or folds one.
function write(answer, kind, text) {
  if (answer.part?.kind !== kind) {
    endPart(answer);
    const node = addPart(answer, element(kind === "thought" ? "details" : "div", undefined, kind));
    const title = kind === "thought" ? node.appendChild(element("summary", "Thinking…")) : null;
    answer.part = { kind, title, body: title ? node.appendChild(element("div")) : node, began: performance.now() };
  }
  answer.part.body.append(text);
}

function endPart(answer) {
  if (answer.part?.title) answer.part.title.textContent = "Thought for " + seconds((performance.now() - answer.part.began) / 1000);
  answer.part = null;
}

function addPart(answer, node) {
  answer.waiting.remove();
  return answer.box.appendChild(node);
}

function addCall(answer, piece) {
  endPart(answer);
  const card = addPart(answer, element("div", undefined, "call"));
  card.append(element("b", piece.function.name), element("pre"));
  return { id: piece.id, name: piece.function.name, arguments: "", indent: indenter(), card, body: card.lastChild, field: null, result: null };
}

// JSON in pieces, each to its text with line breaks and indents; what is inside strings stays as it is.
function indenter() {
  let depth = 0, isString = false, isEscaped = false, isOpened = false;
  const line = () => "\n" + "  ".repeat(depth);
  const one = (sign) => {
    if (isString) {
      isString = isEscaped || sign !== '"';
      isEscaped = sign === "\\" && !isEscaped;
      return sign;
    }
    if (/\s/.test(sign)) return "";
    const isClosing = sign === "}" || sign === "]", wasOpened = isOpened;
    if (isClosing) depth -= 1;
    const lead = isClosing !== wasOpened ? line() : ""; // an empty object or list stays in its line
    isOpened = sign === "{" || sign === "[";
    if (isOpened) depth += 1;
    isString = sign === '"';
    return lead + sign + (sign === "," ? line() : sign === ":" ? " " : "");
  };
  return (text) => Array.from(text, one).join("");
}

// Each whole call gets a field for its result; `done` is called when all of them have one.
function offerResults(answer, done) {
  for (const call of answer.calls) {
    if (!isJson(call.arguments)) {
      call.card.append(element("p", "Cut short: it cannot be answered.", "hint"));
      continue;
    }
    const form = call.card.appendChild(element("form"));
    call.field = form.appendChild(element("textarea"));
    Object.assign(call.field, { rows: 1, required: true, placeholder: "result" });
    call.field.setAttribute("aria-label", "Result of " + call.name);
    form.append(element("button", "Answer"));
    submitted(form, call.field, () => {
      if (call.field.readOnly || !call.field.value.trim()) return;
      call.result = call.field.value;
      closeResult(call, true);
      if (answer.calls.every((each) => each.result !== null || !each.field)) done();
    });
  }
}

function closeResult(call, isClosed) {
  if (!call.field) return;
  call.field.readOnly = isClosed;
  call.field.placeholder = isClosed ? "not answered" : "result";
  call.field.nextSibling.hidden = isClosed;
}

const closeResults = (answer) => answer?.calls?.forEach((call) => closeResult(call, true));

function reopenResults(answer) {
  for (const call of answer?.calls || []) {
    call.result = null;
    closeResult(call, false);
  }
}

// As the server takes it back. Calls without a result are left out; reasoning belongs to calls that it led to.
function messagesOf(answer) {
  const calls = answer.calls.filter((call) => call.result !== null);
  if (!calls.length) return [{ role: "assistant", content: answer.content }];
  const told = calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
  const thought = answer.reasoning ? { reasoning_content: answer.reasoning } : {};
  return [
    { role: "assistant", content: answer.content || null, ...thought, tool_calls: told },
    ...calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: call.result })),
  ];
}

function isJson(text) {
  try { JSON.parse(text); } catch { return false; }
  return true;
}
