// The operations by group, and the list of them.

function groupsOf() {
  const groups = new Map((api.tags ?? []).map((tag) => [tag.name, []]));
  for (const [path, ways] of Object.entries(api.paths))
    for (const [method, operation] of Object.entries(ways)) groups.get(operation.tags[0]).push([method, path, operation]);
  return groups;
}

function show() {
  byId("version").textContent = api.info.version;
  for (const [name, operations] of groupsOf()) {
    const list = element("ul");
    byId("list").append(element("h2", name), list);
    byId("operations").append(element("h2", name, "group"));
    for (const [method, path, operation] of operations) {
      const item = element("li"), link = element("a");
      link.href = "#" + operation.operationId;
      link.append(methodMark(method), element("span", path));
      item.dataset.words = `${path} ${operation.operationId} ${operation.summary}`.toLowerCase();
      item.append(link);
      list.append(item);
      byId("operations").append(operationCard(method, path, operation));
    }
  }
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

function find() {
  const wanted = byId("find").value.trim().toLowerCase();
  for (const item of document.querySelectorAll("#list li")) item.hidden = !item.dataset.words.includes(wanted);
}

makeTheme(() => {});
makeKey();
byId("find").addEventListener("input", find);
if (matchMedia("(max-width: 900px)").matches) byId("routes").open = false;
byId("list").addEventListener("click", () => { if (matchMedia("(max-width: 900px)").matches) byId("routes").open = false; });
call("/openapi.json").then(async (answer) => {
  if (!answer.ok) throw new Error(await whyRefused(answer));
  Object.assign(api, await answer.json());
  show();
}).catch((error) => { byId("wrong").textContent = `/openapi.json could not be read: ${error.message}`; });
