"""One request in the engine, read as text: tokens come in, pieces of text and finish reasons go out.

Always: every sample gets exactly one delta with `finish` set, and it is its last; the request is gone from the engine
once the answer is closed. Knows nothing of JSON or HTTP.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec

from chairlift.core.errors import ChairliftError, InvalidRequest
from chairlift.core.limits import output_room
from chairlift.core.params import SamplingParams
from chairlift.core.score import TokenScore
from chairlift.live.messages import Output
from chairlift.server.context import ServerContext
from chairlift.text.stream import TextStream


class RequestFailed(ChairliftError):
    """The engine gave a request up; trying again may help."""


class Delta(msgspec.Struct, frozen=True, gc=False):
    """One token of one sample with the text it completes, or only the sample's end."""

    sample: int
    token: int | None
    text: str
    score: TokenScore | None = None
    finish: str | None = None  # "stop", "length" or "abort"
    stop: str | int | None = None  # the stop string or stop token that ended it


class Answer:
    """Checks and submits a request when made; `close` it when done, whatever happened."""

    def __init__(
        self,
        context: ServerContext,
        prompt: list[int],
        params: SamplingParams,
        *,
        cache_salt: str = "",
        priority: int = 0,
        user: str = "",
        deadline_s: float | None = None,
    ) -> None:
        output_room(prompt, params, context.engine.limits)
        self.prompt = prompt
        self.num_cached = 0
        self.num_output = 0
        self.prompt_scores: Sequence[TokenScore] = ()
        self._params = params
        self._eos_ids = () if params.ignore_eos else context.model_config.eos_ids
        end_ids = frozenset((*self._eos_ids, *params.stop_token_ids))
        self._texts = [TextStream(context.tokenizer, prompt, params, end_ids) for _ in range(params.num_samples)]
        self._open = set(range(params.num_samples))
        self._generation = context.client.submit(
            prompt, params, cache_salt=cache_salt, priority=priority, user=user, deadline_s=deadline_s
        )

    def close(self) -> None:
        self._generation.abort()

    async def deltas(self) -> AsyncIterator[Delta]:
        async for output in self._generation:
            if output.prompt_scores is not None:
                self.prompt_scores = output.prompt_scores
            self.num_cached = max(self.num_cached, output.num_cached)
            # A sample that a stop string ended may have had further tokens under way.
            if output.sample not in self._open or (output.token is None and output.finish is None):
                continue
            yield self._read(output)
            if not self._open:
                return
        if self._open:
            raise RequestFailed("the engine ended the request before it was finished")

    def _read(self, output: Output) -> Delta:
        if output.finish == "error":
            message = output.error or "the engine gave no reason"
            raise InvalidRequest(output.error_field, message) if output.error_field else RequestFailed(message)
        sample, token, finish = output.sample, output.token, output.finish
        texts = self._texts[sample]
        if token is not None:
            self.num_output += 1
        text, stop = texts.push(token) if token is not None else ("", None)
        if stop is None and finish is None:
            return Delta(sample, token, text, output.score)
        self._open.discard(sample)
        if finish is None:
            self._generation.abort_sample(sample)
        elif stop is None:
            text += texts.finish()
            stop = texts.stop
        if stop is not None:
            return Delta(sample, token, text, output.score, "stop", stop)
        ending = token if finish == "stop" and token not in self._eos_ids else None
        return Delta(sample, token, text, output.score, finish, ending)


async def merge(answers: Sequence[Answer]) -> AsyncIterator[tuple[int, Delta]]:
    """The deltas of several answers as they come, each with the index of its answer."""
    if len(answers) == 1:
        async for delta in answers[0].deltas():
            yield 0, delta
        return
    news: asyncio.Queue[tuple[int, Delta] | BaseException | None] = asyncio.Queue()

    async def forward(index: int, answer: Answer) -> None:
        try:
            async for delta in answer.deltas():
                news.put_nowait((index, delta))
            news.put_nowait(None)
        except Exception as error:
            news.put_nowait(error)

    tasks = [asyncio.create_task(forward(index, answer)) for index, answer in enumerate(answers)]
    try:
        num_open = len(tasks)
        while num_open:
            item = await news.get()
            if item is None:
                num_open -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
