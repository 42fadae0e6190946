"""The Python interface for asyncio: one engine, many tasks, outputs as they come.

Always: tasks never wait for a step themselves, and share the steps of all. A task that is cancelled, or leaves its loop
over outputs, frees its request; an error ends its own request alone. Used from one event loop, or from several.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Self, Unpack

from chairlift.build import ResolvedModel
from chairlift.core.params import SamplingParams
from chairlift.live.adapters.registry import Adapter
from chairlift.live.wire.shared_switchboard import Request
from chairlift.live.wire.stepping_thread import SteppingThread
from chairlift.llm import Prompt
from chairlift.local.adapters import AskedAdapter, adapter_of
from chairlift.local.completing import Completing, MakeStream
from chairlift.local.model import ChatOptions, LocalModel, Messages, TokenizerCheck
from chairlift.local.outputs import EmbeddingRequestOutput, RequestOutput, ScoringRequestOutput
from chairlift.text.prompt_forms import TokenIds, read_chat, read_prompt

Outputs = AsyncGenerator[RequestOutput, None]


class AsyncLLM(LocalModel):
    def _start(self, model: ResolvedModel, *checks: TokenizerCheck) -> None:
        super()._start(model, *checks)
        self._stepping = SteppingThread(self._shared)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Frees the model's memory; requests under way end with an error. Waits for the end of a step under way."""
        if hasattr(self, "_stepping"):
            self._stepping.close()
        super().close()

    shutdown = close  # vLLM's name

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: AskedAdapter = None,
    ) -> Outputs:
        """Outputs of one prompt as they come; the last one is `finished`. `sampling_params.output_kind` says what each
        shows: all so far, what is new, or all at once in the end."""
        asked = read_prompt(prompt)
        (params,) = self._params_for(sampling_params, 1)
        request = self._request(asked, params)
        adapter = adapter_of(self._adapters, lora_request)
        return self._outputs(asked, request, self._stream_of, request_id, adapter)

    def chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: AskedAdapter = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        **options: Unpack[ChatOptions],
    ) -> Outputs:
        """As `generate`, for a conversation; outputs have `reasoning` and, once they end, `tool_calls` too."""
        (params,) = self._params_for(sampling_params, 1)
        turn = self._turn(read_chat(messages), tools, tool_choice, options)
        request = self._turn_request(turn, params)
        adapter = adapter_of(self._adapters, lora_request)
        return self._outputs(request[0], request, self._turn_maker(turn), request_id, adapter)

    async def embed(
        self,
        prompts: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        truncate_prompt_tokens: int | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """As `LLM.embed`."""
        embedder = self._embedder()
        return await asyncio.to_thread(embedder.embed, prompts, prompt_name, dimensions, truncate_prompt_tokens)

    async def score(
        self,
        queries: str | Sequence[str],
        documents: str | Sequence[str],
        *,
        truncate_prompt_tokens: int | None = None,
    ) -> list[ScoringRequestOutput]:
        """As `LLM.score`."""
        return await asyncio.to_thread(self._embedder().score, queries, documents, truncate_prompt_tokens)

    async def _outputs(
        self,
        prompt: str | TokenIds,
        request: Request,
        make: MakeStream,
        request_id: str | None,
        adapter: Adapter | None,
    ) -> Outputs:
        subscription = self._stepping.ask(request, adapter)
        try:
            end_sample = self._shared.end_sample
            completing = Completing([prompt], [request], subscription.keys, [make], self.tokenizer, end_sample)
            (reading,) = completing.readings.values()
            reading.output.request_id = request_id or reading.output.request_id
            async with aclosing(self._stepping.outputs(subscription)) as arriving:
                async for outputs in arriving:
                    for output in outputs:
                        completing.take(output)
                    if (shown := reading.shown()) is not None:
                        yield shown
                    if completing.is_over:
                        return
        finally:
            self._stepping.drop(subscription)
