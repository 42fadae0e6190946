// Sends an operation from the page and shows what comes back, as it comes.

const MAX_SHOWN = 200_000; // characters: some streams never end

function tryBox(method, path, operation) {
  const box = element("details", undefined, "try"), form = element("form");
  const names = (operation.parameters ?? []).filter((each) => each.in === "path").map((each) => each.name);
  const fields = names.map((name) => form.appendChild(labelled(name, Object.assign(element("input"), { required: true }))));
  const body = bodyOf(operation) ? form.appendChild(labelled("body", element("textarea", JSON.stringify(bodyOf(operation).example ?? {}, null, 2)))) : null;
  const row = element("div", undefined, "row"), status = element("span", "", "status"), output = element("pre", "", "output");
  const submit = element("button", "Send");
  submit.type = "submit";
  let stop = null;
  const halt = button("Stop", () => stop?.abort());
  halt.hidden = output.hidden = true;
  row.append(submit, halt, status);
  form.append(row, output);
  box.append(element("summary", "Try it"), form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const value = (label) => label.lastElementChild.value;
    if (body && !isObject(value(body))) { status.textContent = "the body must be a JSON object"; return; }
    const target = names.reduce((text, name, index) => text.replace(`{${name}}`, encodeURI(value(fields[index]))), path);
    stop = new AbortController();
    halt.hidden = output.hidden = false;
    submit.disabled = true;
    await perform(method, target, body && value(body), stop.signal, status, output);
    halt.hidden = true;
    submit.disabled = false;
  });
  return box;
}

function labelled(text, field) {
  const label = element("label", text);
  field.spellcheck = false;
  field.autocomplete = "off";
  label.append(field);
  return label;
}

function isObject(text) {
  try { return typeof JSON.parse(text) === "object"; } catch { return false; }
}

async function perform(method, path, body, signal, status, output) {
  const began = performance.now(), headers = { Accept: "*/*", ...(body ? { "Content-Type": JSON_TYPE } : {}) };
  output.textContent = "";
  status.textContent = "waiting";
  const inMs = () => `${Math.round(performance.now() - began)} ms`;
  try {
    const answer = await call(path, { method: method.toUpperCase(), headers, body: body ?? undefined, signal });
    status.textContent = `${answer.status} ${answer.statusText}, first byte after ${inMs()}`;
    let text = "";
    for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
      text = (text + piece).slice(-MAX_SHOWN);
      output.textContent = text;
    }
    output.textContent = pretty(text);
    status.textContent = `${answer.status} ${answer.statusText}, ${inMs()}`;
  } catch (error) {
    status.textContent += error.name === "AbortError" ? ", stopped" : `: ${error.message}`;
  }
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
