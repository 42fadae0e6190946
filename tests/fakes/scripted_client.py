"""An engine client that plays a script: the same requests give the same tokens, and every abort is written down."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from chairlift.core.attributes import NO_ATTRIBUTES, Attributes
from chairlift.core.errors import EngineUnavailable
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.score import ScoreList, TokenScore
from chairlift.live.adapters.registry import Adapter
from chairlift.live.wire.generation import Generation, Listener
from chairlift.live.wire.messages import EngineInfo, Explain, Output, Submit, Watch
from chairlift.live.wire.watch_client import WatchClient
from chairlift.telemetry.phases import Mark
from fakes.patience import HANG_S

Script = Callable[[Sequence[int], int], Sequence[int]]  # prompt and sample index to tokens


@dataclass
class Submitted:
    prompt: list[int]
    params: SamplingParams
    attributes: Attributes
    expires: float | None
    name: str
    adapter: Adapter | None = None
    aborts: list[int | None] = field(default_factory=list)  # a sample, or None for the whole request


@dataclass
class ScriptedClient:
    """The generations are the real client's; this one stands for the wire and the engine."""

    script: Script
    eos_id: int
    limits: Limits
    delay_s: float = 0.0
    num_cached: int = 0
    num_running: int = 0
    num_waiting: int = 0
    num_held: int = 0
    is_ready: bool = True
    fingerprint: str | None = None
    dies_at: int | None = None  # the step at which the engine goes away
    stalls_at: int | None = None  # the step that does not come
    times_out_at: int | None = None  # the step at which the engine finds the time over
    fails_at: int | None = None  # the step at which a request is given up
    refusal: tuple[str | None, str] | None = None  # field and message
    marks: list[Mark] | None = None  # what a traced request hears with its first token
    requests: list[Submitted] = field(default_factory=list)
    watched: list[Watch | Explain] = field(default_factory=list)  # what was asked of it as of an engine to look at
    _plays: dict[int, asyncio.Future[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.watching = WatchClient(self._watch)

    def _watch(self, message: Watch | Explain) -> bool:
        self.watched.append(message)
        return self.is_ready

    @property
    def info(self) -> EngineInfo | None:
        chosen = {"device": "cpu", "dtype": "float32", "kernels": "native", "threads": "2"}
        return EngineInfo(self.limits, "float32", "cpu", self.fingerprint, chosen=chosen) if self.is_ready else None

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        max_output: int,
        listener: Listener,
        *,
        attributes: Attributes = NO_ATTRIBUTES,
        expires: float | None = None,
        name: str = "",
        is_traced: bool = False,
        adapter: Adapter | None = None,
    ) -> Generation:
        if not self.is_ready:
            raise EngineUnavailable("the engine is starting")
        # The real client's message, so that what cannot cross the wire fails here too.
        key = len(self.requests)
        submit = Submit(key, prompt, params, max_output, attributes, expires)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(submit), type=Submit).params == params
        self.requests.append(Submitted(prompt, params, attributes, expires, name, adapter))
        generation = Generation(self, submit, listener)  # type: ignore[arg-type]
        self._plays[key] = asyncio.ensure_future(self._play(self.requests[key], generation))
        return generation

    def abort(self, key: int, sample: int | None) -> None:
        self.requests[key].aborts.append(sample)
        if sample is None:
            self.forget(key)

    def forget(self, key: int) -> None:
        self._plays.pop(key)

    async def _play(self, request: Submitted, generation: Generation) -> None:
        params = request.params
        if self.refusal is not None:
            error_field, message = self.refusal
            generation.put(Output(0, 0, None, "error", error=message, error_field=error_field))
            return
        if params.prompt_logprobs is not None:
            scores = ScoreList(self.score(token, params.prompt_logprobs) for token in request.prompt[1:])
            generation.put(Output(0, 0, None, prompt_scores=scores.packed(), num_cached=self.num_cached))
        scripts = [list(self.script(request.prompt, sample)) for sample in range(params.num_samples)]
        live = set(range(params.num_samples))
        step = 0
        while live and None not in request.aborts:
            await asyncio.sleep(2 * HANG_S if step == self.stalls_at else self.delay_s)
            if step == self.dies_at:
                generation.lose(EngineUnavailable("the engine is gone"))
                return
            for sample in sorted(live):
                output = self._output(params, sample, step, scripts[sample])
                if output.finish is not None or sample in request.aborts:
                    live.discard(sample)
                generation.put(output)
            step += 1

    def _output(self, params: SamplingParams, sample: int, step: int, script: list[int]) -> Output:
        if step == self.times_out_at:
            return Output(0, sample, None, "timeout", error="its time is over")
        if step == self.fails_at:
            return Output(0, sample, None, "error", error="the runner failed")
        token = script[step]
        finish = None
        ends = set(params.stop_token_ids) | (set() if params.ignore_eos else {self.eos_id})
        if token in ends:
            finish = "stop"
        elif step + 1 in (params.max_tokens, len(script)):
            finish = "length"
        has_score = params.logprobs is not None or params.best_of > 0
        score = self.score(token, params.logprobs or 0) if has_score else None
        marks = self.marks if step == 0 and sample == 0 else None
        return Output(0, sample, token, finish, score, self.num_cached, marks=marks)

    def score(self, token: int, num_top: int) -> TokenScore:
        """Token t has logit t/4 and log-probability -t/8; the most likely tokens are 0, 1, 2, ..."""
        top = tuple((other, -other / 8) for other in range(num_top))
        return TokenScore(token, token / 4, -token / 8, token + 1, top)
