"""Several streams at once on one engine: `python examples/async_stream.py`."""

import asyncio

from chairlift import AsyncLLM, RequestOutputKind, SamplingParams

PROMPTS = ["The capital of France is", "Water boils at", "A chairlift is"]
PARAMS = SamplingParams(max_tokens=24, temperature=0, output_kind=RequestOutputKind.DELTA)


async def follow(llm: AsyncLLM, prompt: str) -> None:
    async for output in llm.generate(prompt, PARAMS):
        print(f"{prompt!r} + {output.outputs[0].text!r}")


async def main() -> None:
    async with AsyncLLM() as llm:
        await asyncio.gather(*(follow(llm, prompt) for prompt in PROMPTS))


asyncio.run(main())
