// The connection to the server: its API key, and its events.

function storedKey(value) {
  try {
    if (value !== undefined) sessionStorage.setItem("chairlift-key", value);
    return sessionStorage.getItem("chairlift-key") || "";
  } catch { return ""; } // without storage the key is asked for each time
}

let asking = null;
function askForKey() {
  asking ??= new Promise((done) => {
    const dialog = byId("key-dialog");
    dialog.addEventListener("close", () => {
      asking = null;
      if (dialog.returnValue) storedKey(byId("key").value.trim());
      byId("key").value = dialog.returnValue = "";
      showKey();
      done();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

// Where the server is: below a proxy's prefix, perhaps.
const prefix = location.pathname.replace(/\/(docs)?\/?$/, "");

// Without a key there is nothing to change.
function showKey() { byId("key-change").hidden = !storedKey(); }

function makeKey() {
  showKey();
  byId("key-change").addEventListener("click", askForKey);
  // A plain link cannot carry the key.
  for (const link of document.querySelectorAll("a[data-keyed]")) link.addEventListener("click", async (event) => {
    if (!storedKey()) return;
    event.preventDefault();
    const answer = await call(link.getAttribute("href").slice(prefix.length));
    location.assign(URL.createObjectURL(new Blob([await answer.text()], { type: "text/plain" })));
  });
  for (const link of document.querySelectorAll('a[href^="/"]')) link.setAttribute("href", prefix + link.getAttribute("href"));
}

// fetch with the key; asks for one until the server accepts it.
async function call(path, options = {}) {
  for (;;) {
    const key = storedKey();
    const headers = { ...options.headers, ...(key ? { Authorization: "Bearer " + key } : {}) };
    const answer = await fetch(prefix + path, { ...options, headers, cache: "no-store" });
    if (answer.status !== 401) return answer;
    await askForKey();
  }
}

const send = (path, body, signal) =>
  call(path, { method: "POST", signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

async function whyRefused(answer) {
  const body = await answer.json().catch(() => null);
  return body?.error?.message || "the server answers " + answer.status;
}

// The events of a stream, one {name, data} after the other.
async function* eventsOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      let name = "message";
      const data = [];
      for (const line of part.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) data.push(line.slice(6));
      }
      if (data.length) yield { name, data: data.join("\n") };
    }
  }
}
