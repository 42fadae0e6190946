"""Completions of a batch, put together as its outputs arrive.

Always: each sample is read by a stream of its own and ends once, by a stop string or as the engine says. Of `best_of`
samples the best `n` stay. Knows nothing of engines.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from chairlift.core.errors import ChairliftError, InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.core.score import TokenScore, best_samples
from chairlift.live.wire.messages import Output
from chairlift.live.wire.shared_switchboard import Request
from chairlift.text.prompt_forms import TokenIds
from chairlift.text.responses.reading.gathered import ToolCall, gathered
from chairlift.text.responses.reading.stream import ResponseStream
from chairlift.text.stream import TextStream

Stream = TextStream | ResponseStream
MakeStream = Callable[[Request], Stream | None]  # of what reads a sample; None: its text is not wanted
EndSample = Callable[[int, int], None]  # of a request's key and a sample's number


@dataclass(slots=True)
class Sample:
    """One answer to a prompt."""

    text: str
    tokens: list[int]
    finish_reason: str = ""
    stop_reason: str | None = None  # the stop string that ended it
    scores: list[TokenScore] | None = None  # one per token, if params.logprobs is set
    reasoning: str = ""  # of a chat, what the model thought before it answered
    tool_calls: list[ToolCall] = field(default_factory=list)  # of a chat


@dataclass(slots=True)
class Completion:
    prompt: str | None  # None if it was given as tokens
    prompt_tokens: list[int]
    samples: list[Sample]
    num_cached: int = 0
    prompt_scores: list[TokenScore] | None = None

    @property
    def text(self) -> str:
        return self.samples[0].text

    @property
    def reasoning(self) -> str:
        return self.samples[0].reasoning

    @property
    def tool_calls(self) -> list[ToolCall]:
        return self.samples[0].tool_calls


@dataclass(slots=True)
class _Reading:
    """A sample that is not complete."""

    stream: Stream | None
    texts: list[str] = field(default_factory=list)


class Completing:
    """`keys`: those of the requests, as outputs name them. `makers`: one for each request."""

    def __init__(
        self,
        prompts: Sequence[str | TokenIds],
        requests: Sequence[Request],
        keys: Sequence[int],
        makers: Sequence[MakeStream],
        end_sample: EndSample,
    ) -> None:
        self._requests, self._end_sample = requests, end_sample
        asked = zip(prompts, requests, strict=True)
        self._completions = dict(zip(keys, (_begun(*each) for each in asked), strict=True))
        self._open = {
            (key, index): _Reading(make(request))
            for key, request, make in zip(keys, requests, makers, strict=True)
            for index in range(request[1].num_samples)
        }

    @property
    def is_over(self) -> bool:
        return not self._open

    def take(self, output: Output) -> bool:
        """Whether a sample is complete by it."""
        raise_failure(output)
        completion = self._completions[output.key]
        if output.prompt_scores is not None:
            completion.prompt_scores = output.prompt_scores
        key = (output.key, output.sample)
        if output.token is None or key not in self._open:
            return False
        sample, reading = completion.samples[output.sample], self._open[key]
        completion.num_cached = max(completion.num_cached, output.num_cached)
        sample.tokens.append(output.token)
        if sample.scores is not None and output.score is not None:
            sample.scores.append(output.score)
        if reading.stream is None:
            sample.finish_reason = output.finish or ""
        else:
            self._add_text(output, output.token, sample, reading.stream, reading.texts)
        if not sample.finish_reason:
            return False
        del self._open[key]
        return True

    def completions(self) -> list[Completion]:
        """In the order of their prompts, once it is over."""
        made = list(self._completions.values())
        for completion, (_, params, _) in zip(made, self._requests, strict=True):
            if params.best_of:
                _keep_best(completion.samples, params)
        return made

    def _add_text(self, output: Output, token: int, sample: Sample, stream: Stream, texts: list[str]) -> None:
        texts.append(stream.push(token))
        if stream.stop is not None:
            sample.finish_reason, sample.stop_reason = "stop", stream.stop
            self._end_sample(output.key, output.sample)
        elif output.finish is not None:
            texts.append(stream.finish())
            sample.finish_reason, sample.stop_reason = "stop" if stream.stop else output.finish, stream.stop
        if sample.finish_reason:
            sample.text = "".join(texts)
            if isinstance(stream, ResponseStream):
                _add_parts(sample, stream)


def raise_failure(output: Output) -> None:
    if output.error is not None:
        if output.error_field is not None:
            raise InvalidRequest(output.error_field, output.error)
        raise ChairliftError(output.error)


def _begun(prompt: str | TokenIds, request: Request) -> Completion:
    tokens, params, _ = request
    has_scores = params.logprobs is not None or params.best_of > 0
    samples = [Sample("", [], scores=[] if has_scores else None) for _ in range(params.num_samples)]
    return Completion(prompt if isinstance(prompt, str) else None, tokens, samples)


def _add_parts(sample: Sample, stream: ResponseStream) -> None:
    found = gathered(stream.events(), stream.new_call_id)
    sample.reasoning, sample.tool_calls = found.reasoning, found.calls
    if found.calls and sample.finish_reason == "stop":
        sample.finish_reason = "tool_calls"


def _keep_best(samples: list[Sample], params: SamplingParams) -> None:
    samples[:] = [samples[i] for i in best_samples([sample.scores or () for sample in samples], params.n)]
    if params.logprobs is None:
        for sample in samples:
            sample.scores = None
