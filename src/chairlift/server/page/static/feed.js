// The connection to the server: its API key, and its events, as a stream that is opened again when it ends.

const byId = (name) => document.getElementById(name);

function stored(name, value) {
  try {
    if (value !== undefined) sessionStorage.setItem(name, value);
    return sessionStorage.getItem(name) || "";
  } catch { return ""; } // without storage the key is asked for each time
}

let asking = null;
function askForKey() {
  asking ??= new Promise((done) => {
    const dialog = byId("key-dialog");
    dialog.addEventListener("close", () => {
      asking = null;
      stored("chairlift-key", byId("key").value.trim());
      byId("key").value = "";
      done();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

// fetch with the key; asks for one until the server accepts it. Paths begin where the page is, below a proxy's prefix.
async function call(path, options = {}) {
  for (;;) {
    const key = stored("chairlift-key");
    const headers = { ...options.headers, ...(key ? { Authorization: "Bearer " + key } : {}) };
    const answer = await fetch(location.pathname.replace(/\/$/, "") + path, { ...options, headers, cache: "no-store" });
    if (answer.status !== 401) return answer;
    await askForKey();
  }
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

// Runs for ever: events go to take(name, value), the state of the connection to status.
async function follow(take, status) {
  for (let wait = 500; ; wait = Math.min(2 * wait, 5000)) {
    try {
      const answer = await call("/live", { headers: { Accept: "text/event-stream" } });
      if (!answer.ok) throw new Error("the server answers " + answer.status);
      for await (const event of eventsOf(answer)) {
        wait = 500;
        take(event.name, JSON.parse(event.data));
      }
    } catch (error) { console.warn(error); }
    status("lost");
    await new Promise((done) => setTimeout(done, wait));
  }
}
