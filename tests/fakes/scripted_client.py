"""An engine client that plays a script: the same requests give the same tokens, and every abort is written down."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from chairlift.core.errors import EngineUnavailable
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.score import TokenScore
from chairlift.live.messages import EngineInfo, Output, Submit

Script = Callable[[Sequence[int], int], Sequence[int]]  # prompt and sample index to tokens


@dataclass
class Submitted:
    prompt: list[int]
    params: SamplingParams
    cache_salt: str
    priority: int
    user: str
    deadline_s: float | None
    aborts: list[int | None] = field(default_factory=list)  # a sample, or None for the whole request
    is_done: bool = False


class ScriptedGeneration:
    def __init__(self, client: "ScriptedClient", request: Submitted) -> None:
        self._client = client
        self._request = request
        self._outputs = self._play()

    def __aiter__(self) -> AsyncIterator[Output]:
        return self

    async def __anext__(self) -> Output:
        return await anext(self._outputs)

    def abort(self) -> None:
        if not self._request.is_done and None not in self._request.aborts:
            self._request.aborts.append(None)

    def abort_sample(self, sample: int) -> None:
        self._request.aborts.append(sample)

    async def _play(self) -> AsyncIterator[Output]:
        request, client = self._request, self._client
        params = request.params
        if client.refusal is not None:
            error_field, message = client.refusal
            yield Output(0, 0, None, "error", error=message, error_field=error_field)
            return
        if params.prompt_logprobs is not None:
            scores = [client.score(token, params.prompt_logprobs) for token in request.prompt[1:]]
            yield Output(0, 0, None, prompt_scores=scores, num_cached=client.num_cached)
        scripts = [list(client.script(request.prompt, sample)) for sample in range(params.num_samples)]
        live = set(range(params.num_samples))
        step = 0
        while live:
            await asyncio.sleep(client.delay_s)
            if step == client.dies_at:
                raise EngineUnavailable("the engine is gone")
            for sample in sorted(live):
                output = self._output(sample, step, scripts[sample])
                if output.finish is not None or sample in request.aborts:
                    live.discard(sample)
                request.is_done = not live and output.finish != "error"
                yield output
            step += 1

    def _output(self, sample: int, step: int, script: list[int]) -> Output:
        client, params = self._client, self._request.params
        if step == client.fails_at:
            return Output(0, sample, None, "error", error="the runner failed")
        token = script[step]
        finish = None
        ends = set(params.stop_token_ids) | (set() if params.ignore_eos else {client.eos_id})
        if token in ends:
            finish = "stop"
        elif step + 1 in (params.max_tokens, len(script)):
            finish = "length"
        has_score = params.logprobs is not None or params.best_of > 0
        score = client.score(token, params.logprobs or 0) if has_score else None
        return Output(0, sample, token, finish, score, client.num_cached)


@dataclass
class ScriptedClient:
    script: Script
    eos_id: int
    limits: Limits
    delay_s: float = 0.0
    num_cached: int = 0
    num_running: int = 0
    num_waiting: int = 0
    is_ready: bool = True
    dies_at: int | None = None  # the step at which the engine goes away
    fails_at: int | None = None  # the step at which a request is given up
    refusal: tuple[str | None, str] | None = None  # field and message
    requests: list[Submitted] = field(default_factory=list)

    @property
    def info(self) -> EngineInfo | None:
        return EngineInfo(self.limits, "float32", "cpu") if self.is_ready else None

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        *,
        cache_salt: str = "",
        priority: int = 0,
        user: str = "",
        deadline_s: float | None = None,
    ) -> ScriptedGeneration:
        if not self.is_ready:
            raise EngineUnavailable("the engine is starting")
        # The real client's message, so that what cannot cross the wire fails here too.
        sent = msgspec.msgpack.decode(
            msgspec.msgpack.encode(Submit(1, prompt, params, cache_salt, 0, priority, user, deadline_s)), type=Submit
        )
        assert sent.params == params
        request = Submitted(prompt, params, cache_salt, priority, user, deadline_s)
        self.requests.append(request)
        return ScriptedGeneration(self, request)

    def score(self, token: int, num_top: int) -> TokenScore:
        """Token t has logit t/4 and log-probability -t/8; the most likely tokens are 0, 1, 2, ..."""
        top = tuple((other, -other / 8) for other in range(num_top))
        return TokenScore(token, token / 4, -token / 8, token + 1, top)
