// Elements of the page, made of text and never of markup.

const byId = (name) => document.getElementById(name);

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function button(text, onClick, className = "quiet") {
  const made = element("button", text, className);
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

// Copies what `read` gives and says so for a moment.
function copyButton(read) {
  const made = button("copy", async () => {
    made.textContent = (await copy(read())) ? "copied" : "not copied";
    setTimeout(() => { made.textContent = "copy"; }, 1200);
  });
  return made;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { return copyBySelection(text); } // without HTTPS there is no clipboard
}

function copyBySelection(text) {
  const field = element("textarea", text, "sr");
  document.body.append(field);
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  return isDone;
}

// What this browser keeps, as JSON; nothing where it keeps nothing.
function kept(name, value) {
  try {
    if (value !== undefined) localStorage.setItem("chairlift-" + name, JSON.stringify(value));
    return JSON.parse(localStorage.getItem("chairlift-" + name));
  } catch { return value ?? null; }
}
