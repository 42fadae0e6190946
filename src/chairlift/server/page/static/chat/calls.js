// Calls of tools as cards: each whole call of the last answer takes a result; when all have one, they are sent.

function callView(part, turn, box) {
  const card = box.appendChild(element("div", undefined, "call")), body = element("pre");
  card.append(element("b", part.name), body);
  let form = null;
  return () => {
    body.textContent = indented(part.arguments);
    if (!turn.isDone) return;
    form ??= card.appendChild(isJson(part.arguments) ? resultForm(part, turn) : element("p", "Cut short: it cannot be answered.", "hint"));
    closeResult(form, part.result !== null || !isLast(turn));
  };
}

function resultForm(part, turn) {
  const form = element("form"), field = form.appendChild(element("textarea"));
  Object.assign(field, { rows: 1, required: true, value: part.result ?? "" });
  field.setAttribute("aria-label", "Result of " + part.name);
  form.append(element("button", "Answer"));
  submitted(form, field, () => {
    if (field.readOnly || !field.value.trim()) return;
    part.result = field.value;
    closeResult(form, true);
    keepTurns();
    // Held to another call, a model would never come to use the results.
    if (callsOf(turn).every((call) => call.result !== null || !isJson(call.arguments))) ask("auto");
  });
  return form;
}

function closeResult(form, isClosed) {
  const field = form.querySelector("textarea");
  if (!field) return;
  field.readOnly = isClosed;
  field.placeholder = isClosed ? "not answered" : "result";
  form.querySelector("button").hidden = isClosed;
}

// By its button, or by Enter in the field.
function submitted(form, field, submit) {
  form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
  });
}
