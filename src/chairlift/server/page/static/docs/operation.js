// One operation: what it takes, what it gives, and the command that asks for it.

const JSON_TYPE = "application/json";
const bodyOf = (operation) => operation.requestBody?.content[JSON_TYPE];

function commandOf(method, path, operation) {
  const lines = [`curl ${location.origin}${path}`], body = bodyOf(operation);
  if (storedKey()) lines.push("-H 'Authorization: Bearer KEY'");
  if (body) lines.push(`-H 'Content-Type: ${JSON_TYPE}'`, `-d '${JSON.stringify(body.example ?? {}).replaceAll("'", "'\\''")}'`);
  return lines.join(" \\\n  ");
}

function operationCard(method, path, operation) {
  const card = element("section", undefined, "card operation"), head = element("div", undefined, "head");
  card.id = operation.operationId;
  const title = element("h3", operation.summary), line = element("p", undefined, "path");
  title.append(element("code", operation.operationId, "id"));
  line.append(methodMark(method), element("code", path));
  head.append(title);
  const command = element("pre", commandOf(method, path, operation)), frame = element("div", undefined, "command");
  frame.append(command, copyButton(() => command.textContent));
  card.append(head, line, frame, ...parametersOf(operation), ...requestOf(operation), answersOf(operation), tryBox(method, path, operation));
  return card;
}

const methodMark = (method) => element("b", method.toUpperCase(), "method " + method);

function parametersOf(operation) {
  if (!operation.parameters?.length) return [];
  const table = element("table", undefined, "fields");
  for (const each of operation.parameters) {
    const row = fieldRow(each.name, { description: each.description, ...each.schema }, each.required);
    row.cells[1].querySelector(".type").append(` in the ${each.in}`);
    table.append(row);
  }
  return [element("h4", "Parameters"), table];
}

function requestOf(operation) {
  const schema = namedSchema(bodyOf(operation)?.schema);
  if (!schema) return [];
  const box = element("details"), num = Object.keys(schema.properties ?? {}).length;
  box.append(element("summary", `Body: ${schema.title}, ${num} fields`), fieldsOf(schema));
  return [box];
}

function answersOf(operation) {
  const box = element("details"), table = element("table", undefined, "fields");
  const codes = Object.entries(operation.responses).sort(([a], [b]) => (a === "default") - (b === "default"));
  box.append(element("summary", "Answers: " + codes.map(([code]) => code).join(", ")), table);
  for (const [code, answer] of codes) {
    const row = element("tr"), what = element("td"), title = element("td");
    title.append(element("code", code));
    what.append(element("span", Object.keys(answer.content ?? {}).join(" or "), "type"), element("p", answer.description));
    for (const name of Object.keys(answer.headers ?? {})) what.append(element("p", `header ${name}: ${answer.headers[name].description}`));
    const schema = namedSchema(answer.content?.[JSON_TYPE]?.schema);
    if (schema) what.append(folded(schema));
    row.append(title, what);
    table.append(row);
  }
  return box;
}
