// The tools that an answer may call: a JSON list, as OpenAI's clients send it.

const WEATHER = { name: "weather", description: "The weather of a city", parameters: {
  type: "object", properties: { city: { type: "string", maxLength: 20 } }, required: ["city"], additionalProperties: false } };
const FORM = '{"type": "function", "function": {"name": "…", "parameters": {…}}}';

function toolsOf(text) {
  if (!text.trim()) return [];
  let tools;
  try { tools = JSON.parse(text); } catch (error) { throw new Error(`Tools must be JSON: ${error.message}`); }
  if (!Array.isArray(tools)) throw new Error(`Tools must be a list: [${FORM}]`);
  const wrong = tools.findIndex((tool) => typeof tool?.function?.name !== "string");
  if (wrong >= 0) throw new Error(`Tool ${wrong + 1} must be ${FORM}`);
  return tools;
}

// The tools, or null when what is written is wrong, which is then said.
function readTools() {
  let tools = null, wrong = "";
  try { tools = toolsOf(byId("tools").value); } catch (error) { wrong = error.message; }
  byId("tools-wrong").textContent = wrong;
  byId("tools").setAttribute("aria-invalid", String(tools === null));
  byId("tools-names").textContent = tools?.length ? ": " + tools.map((tool) => tool.function.name).join(", ") : "";
  return tools;
}

function showWrongTools() {
  byId("tools-box").open = true;
  byId("tools").focus();
}

function makeTools() {
  byId("tools").addEventListener("change", readTools);
  byId("tools-example").addEventListener("click", () => {
    byId("tools").value = JSON.stringify([{ type: "function", function: WEATHER }], null, 2);
    readTools();
  });
}
