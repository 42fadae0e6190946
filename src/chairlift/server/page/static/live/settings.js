// The rules and settings in force.

function showRules(rules) {
  byId("rules").replaceChildren(...rules.map((rule) => {
    const pair = element("div"), what = element("dd");
    what.append(element("b", rule.value), element("span", rule.summary || rule.purpose));
    pair.append(element("dt", rule.option), what);
    return pair;
  }));
}

function showSettings(settings) {
  const body = byId("settings-table").tBodies[0];
  body.replaceChildren();
  let group = null;
  for (const [name, value, isDefault, groupName, help] of settings) {
    if (groupName !== group) {
      group = groupName;
      const title = element("th", group);
      title.colSpan = 2;
      body.insertRow().append(title);
    }
    const row = body.insertRow();
    row.title = help;
    row.append(element("td", name, "name soft"), element("td", value, isDefault ? "" : "own"));
  }
}
