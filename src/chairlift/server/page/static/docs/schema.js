// JSON schemas in words, and as tables of fields; what a field refers to is folded.

const api = { paths: {}, components: { schemas: {} } };
const WIDE = 2 ** 53; // bounds beyond this are those of the number type

const namedSchema = (schema) => (schema?.$ref ? api.components.schemas[schema.$ref.split("/").pop()] : schema);
const isNull = (schema) => schema.type === "null";

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum || "const" in schema) return (schema.enum ?? [schema.const]).map((value) => JSON.stringify(value)).join(" or ");
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return [...new Set(choices.filter((each) => !isNull(each)).map(typeOf))].join(" or ");
  if (schema.type === "array") return schema.items ? "list of " + typeOf(schema.items) : "list";
  return schema.type ?? "any";
}

// The first object that a field may hold, itself or in a list.
function objectIn(schema) {
  if (schema.$ref) {
    const found = namedSchema(schema);
    return found.properties ? found : objectIn(found);
  }
  for (const each of [...(schema.anyOf ?? schema.oneOf ?? []), ...(schema.items ? [schema.items] : [])]) {
    const found = objectIn(each);
    if (found) return found;
  }
  return null;
}

function boundsOf(schema) {
  const kinds = [schema, ...(schema.anyOf ?? [])], of = (name) => kinds.map((kind) => kind[name]).find((bound) => bound !== undefined && Math.abs(bound) < WIDE);
  const least = of("minimum"), most = of("maximum");
  if (least !== undefined && most !== undefined) return `${least} to ${most}`;
  return least !== undefined ? `at least ${least}` : most !== undefined ? `at most ${most}` : "";
}

function fieldsOf(schema) {
  const table = element("table", undefined, "fields"), required = new Set(schema.required);
  const names = Object.keys(schema.properties ?? {}).sort((a, b) => required.has(b) - required.has(a));
  for (const name of names) table.append(fieldRow(name, schema.properties[name], required.has(name)));
  return table;
}

function fieldRow(name, schema, isRequired) {
  const row = element("tr"), what = element("td"), title = element("td");
  title.append(element("code", name));
  if (isRequired) title.append(element("span", "required", "required"));
  const value = schema.default ?? null;
  const said = [schema.description, boundsOf(schema), value === null ? "" : `default ${JSON.stringify(value)}`].filter(Boolean).join("; ");
  what.append(element("span", typeOf(schema), "type"), element("p", said));
  const inner = objectIn(schema);
  if (inner) what.append(folded(inner));
  row.append(title, what);
  return row;
}

// Made when it is opened: schemas may refer to themselves.
function folded(schema) {
  const box = element("details");
  box.append(element("summary", schema.title ?? "fields"));
  box.addEventListener("toggle", () => { if (box.open && !box.querySelector("table")) box.append(fieldsOf(schema)); });
  return box;
}
