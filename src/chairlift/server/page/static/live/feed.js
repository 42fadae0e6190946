// The page's events, as a stream that is opened again when it ends.

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
