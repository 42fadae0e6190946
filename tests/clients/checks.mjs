// What each npm client is tried with; `node checks.mjs URL` prints a line for each, and fails if one does.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { strict as assert } from "node:assert";
import { z } from "zod";

const MODEL = "SmolLM2-135M-Instruct";
const QUESTION = "What is the weather in Paris? Use a tool.";
const url = process.argv[2];
const event = z.object({ kind: z.enum(["meeting", "party"]), day: z.enum(["Monday", "Friday"]) });
const official = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const responses = createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" });
const compatible = createOpenAICompatible({
  name: "chairlift", baseURL: `${url}/v1`, supportsStructuredOutputs: true, includeUsage: true,
});
const weather = tool({
  description: "The weather of a city",
  inputSchema: z.object({ city: z.enum(["Paris", "Bern"]) }),
  execute: async ({ city }) => `Sun in ${city}`,
});

async function structured(model, providerOptions) {
  const made = await generateText({
    model, prompt: "A party on Friday", output: Output.object({ schema: event }), maxOutputTokens: 100, maxRetries: 0,
    providerOptions,
  });
  event.parse(made.output);
}

async function withTools(model, providerOptions) {
  const made = streamText({
    model, prompt: QUESTION, tools: { weather }, toolChoice: "required", stopWhen: stepCountIs(2),
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
    maxOutputTokens: 200, maxRetries: 0, providerOptions, onError: ({ error }) => { throw error; },
  });
  await made.consumeStream();
  const steps = await made.steps;
  assert.equal(steps.length, 2);
  assert.ok(steps[0].toolResults.length >= 1);
  assert.ok((await made.text).length > 0);
}

const kept = { openai: { store: false } };
const checks = {
  "npm openai: parse": async () => {
    const made = await official.chat.completions.parse({
      model: MODEL, messages: [{ role: "user", content: "A party on Friday" }], max_tokens: 100,
      response_format: zodResponseFormat(event, "event"),
    });
    event.parse(made.choices[0].message.parsed);
  },
  "npm openai: a runner of tools": async () => {
    const runner = official.chat.completions.runTools({
      model: MODEL, messages: [{ role: "user", content: QUESTION }], max_tokens: 200, stream: true,
      tool_choice: { type: "function", function: { name: "weather" } },
      tools: [{ type: "function", function: {
        name: "weather", description: "The weather of a city", parse: JSON.parse, function: () => "Sun",
        parameters: { type: "object", properties: { city: { enum: ["Paris", "Bern"] } }, required: ["city"],
          additionalProperties: false },
      } }],
    });
    await runner.done();
    assert.ok(runner.messages.some((message) => message.role === "tool"));
  },
  "npm openai: responses": async () => {
    const made = await official.responses.parse({
      model: MODEL, input: "A party on Friday", max_output_tokens: 100, text: { format: zodTextFormat(event, "event") },
    });
    event.parse(made.output_parsed);
  },
  "ai, openai-compatible: structured": () => structured(compatible(MODEL)),
  "ai, openai-compatible: tools in two steps": () => withTools(compatible(MODEL)),
  "ai, openai chat: structured": () => structured(responses.chat(MODEL)),
  "ai, openai chat: tools in two steps": () => withTools(responses.chat(MODEL)),
  "ai, openai responses: structured": () => structured(responses.responses(MODEL), kept),
  "ai, openai responses: tools in two steps": () => withTools(responses.responses(MODEL), kept),
  "ai, anthropic: structured": () => structured(anthropic(MODEL)),
  "ai, anthropic: tools in two steps": () => withTools(anthropic(MODEL)),
};

let numFailed = 0;
for (const [name, run] of Object.entries(checks)) {
  try {
    await run();
    console.log(`ok      ${name}`);
  } catch (error) {
    numFailed += 1;
    console.log(`FAILED  ${name}\n${error?.stack ?? error}\n${error?.responseBody ?? ""}`);
  }
}
process.exit(Math.min(numFailed, 1));
