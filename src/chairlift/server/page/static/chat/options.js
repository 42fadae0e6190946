// How answers are made: the model, the system prompt, sampling. What is left empty is left to the server.

const SAMPLING = {
  max_tokens: ["max tokens", { min: 1, step: 1 }],
  temperature: ["temperature", { min: 0, max: 2, step: 0.1 }],
  top_p: ["top p", { min: 0, max: 1, step: 0.05 }],
  top_k: ["top k", { min: -1, step: 1 }],
  min_p: ["min p", { min: 0, max: 1, step: 0.01 }],
  repetition_penalty: ["repetition penalty", { min: 0.1, max: 2, step: 0.05 }],
  presence_penalty: ["presence penalty", { min: -2, max: 2, step: 0.1 }],
  frequency_penalty: ["frequency penalty", { min: -2, max: 2, step: 0.1 }],
  seed: ["seed", { step: 1 }],
};
const optionNames = [...Object.keys(SAMPLING), "stop", "system"];
const optionField = (name) => byId("option-" + name);

function makeOptions() {
  const values = kept("options") ?? {};
  for (const [name, [title, bounds]] of Object.entries(SAMPLING)) {
    const label = element("label", title), field = element("input");
    Object.assign(field, { id: "option-" + name, type: "number", placeholder: "auto", value: values[name] ?? "", ...bounds });
    label.append(field);
    byId("options").append(label);
  }
  optionField("stop").value = values.stop ?? "";
  optionField("system").value = values.system ?? "";
  byId("options-box").addEventListener("change", keepOptions);
  byId("chat-model").addEventListener("change", () => kept("model", byId("chat-model").value));
  showChanged();
}

function keepOptions() {
  kept("options", Object.fromEntries(optionNames.map((name) => [name, optionField(name).value])));
  showChanged();
}

function showChanged() {
  const num = optionNames.filter((name) => optionField(name).value.trim()).length;
  byId("options-changed").textContent = num ? ` (${num} set)` : "";
}

// The fields of a request. A stop sequence may hold \n for a line break.
function optionsOf() {
  const found = { model: byId("chat-model").value || undefined };
  for (const name of Object.keys(SAMPLING)) {
    const { value } = optionField(name);
    if (value !== "") found[name] = Number(value);
  }
  const stops = optionField("stop").value.split(",").map((stop) => stop.replaceAll("\\n", "\n")).filter(Boolean);
  return stops.length ? { ...found, stop: stops } : found;
}

// Adapters may come and go while the server runs.
async function listModels() {
  const answer = await call("/v1/models").catch(() => null);
  if (!answer?.ok) return;
  const names = (await answer.json()).data.map((model) => model.id), select = byId("chat-model");
  const wanted = select.value || kept("model");
  select.replaceChildren(...names.map((name) => Object.assign(element("option", name), { value: name })));
  select.value = names.includes(wanted) ? wanted : names[0];
}
