"""Complete some prompts in this process: `python examples/offline.py`."""

from chairlift import LLM, SamplingParams

llm = LLM()  # the embedded default; LLM("Qwen/Qwen3-0.6B") or LLM("path/to/folder") for another
prompts = ["The capital of France is", "Water boils at", "A chairlift is"]
for completion in llm.generate(prompts, SamplingParams(max_tokens=24, temperature=0)):
    print(f"{completion.prompt!r} -> {completion.text!r}")
