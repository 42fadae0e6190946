"""The outputs of requests, put together as an engine's arrive.

Always: each sample is read by a stream of its own and ends once, by a stop string or as the engine says. Of `best_of`
samples the best `n` stay. Knows nothing of engines.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from chairlift.core.errors import ChairliftError, InvalidRequest
from chairlift.core.param_types import RequestOutputKind
from chairlift.core.params import SamplingParams
from chairlift.core.score import ScoreList, TokenScore, best_samples
from chairlift.live.wire.messages import Output
from chairlift.live.wire.shared_switchboard import Request
from chairlift.local.outputs import CompletionOutput, RequestMetrics, RequestOutput, logprobs_of
from chairlift.text.prompt_forms import TokenIds
from chairlift.text.responses.reading.events import Reasoning
from chairlift.text.responses.reading.gathered import Pieces, ToolCall
from chairlift.text.responses.reading.stream import ResponseStream
from chairlift.text.stream import TextStream
from chairlift.text.tokenizer import Tokenizer

Stream = TextStream | ResponseStream
MakeStream = Callable[[Request], Stream | None]  # of what reads a sample; None: its text is not wanted
EndSample = Callable[[int, int], None]  # of a request's key and a sample's number


class SampleReading:
    """One sample as its tokens arrive: `output` has its tokens at once, and its text when it is complete."""

    def __init__(self, index: int, params: SamplingParams, stream: Stream | None, tokenizer: Tokenizer) -> None:
        self.output = CompletionOutput(index, "", [])
        self.scores = ScoreList()  # where the best are to be chosen
        if params.logprobs is not None:
            self.output.logprobs, self.output.cumulative_logprob = [], 0.0
        self._params = params
        self._stream = stream
        self._tokenizer = None if stream is None else tokenizer  # of log-probabilities
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._pieces = Pieces(stream.new_call_id) if isinstance(stream, ResponseStream) else None
        self._shown = (0, 0, 0, 0)  # texts, thoughts, calls and tokens that `news` has told

    def take(self, token: int, finish: str | None, score: TokenScore | None) -> bool:
        """Whether the engine has to be told that it is complete."""
        output, stream = self.output, self._stream
        output.token_ids.append(token)
        if score is not None:
            self._take_score(score)
        if stream is None:
            self._end(finish, token)
            return False
        self._texts.append(stream.push(token))
        if stream.stop is None and finish is not None:
            self._texts.append(stream.finish())
        if stream.stop is not None:
            output.stop_reason = stream.stop
        self._end("stop" if stream.stop is not None else finish, token)
        return stream.stop is not None and finish is None

    def so_far(self) -> CompletionOutput:
        """A copy with the text as far as it may be shown."""
        self._read_parts()
        output = self.output
        return replace(
            output,
            text="".join(self._texts),
            reasoning="".join(self._thoughts),
            token_ids=list(output.token_ids),
            tool_calls=list(output.tool_calls),
            logprobs=None if output.logprobs is None else list(output.logprobs),
        )

    def news(self) -> CompletionOutput | None:
        """What came since this was last asked; None: nothing."""
        self._read_parts()
        output = self.output
        before = self._shown
        now = (len(self._texts), len(self._thoughts), len(output.tool_calls), len(output.token_ids))
        if now == before:
            return None
        self._shown = now
        texts, thoughts, calls, tokens = before
        return replace(
            output,
            text="".join(self._texts[texts:]),
            reasoning="".join(self._thoughts[thoughts:]),
            tool_calls=output.tool_calls[calls:],
            token_ids=output.token_ids[tokens:],
            logprobs=None if output.logprobs is None else output.logprobs[tokens:],
        )

    def _take_score(self, score: TokenScore) -> None:
        output = self.output
        if self._params.best_of:
            self.scores.append(score)
        if output.logprobs is not None and output.cumulative_logprob is not None:
            output.logprobs.append(logprobs_of(score, self._tokenizer))
            output.cumulative_logprob += score.logprob

    def _end(self, finish: str | None, token: int) -> None:
        if finish is None:
            return
        output = self.output
        if finish == "stop" and output.stop_reason is None and token in self._params.stop_token_ids:
            output.stop_reason = token
        self._read_parts()
        output.text, output.reasoning = "".join(self._texts), "".join(self._thoughts)
        output.finish_reason = "tool_calls" if output.tool_calls and finish == "stop" else finish

    def _read_parts(self) -> None:
        """Reasoning and calls, beside the text."""
        if self._pieces is None or not isinstance(self._stream, ResponseStream):
            return
        for piece in self._pieces.of(self._stream.events()):
            if isinstance(piece, Reasoning):
                self._thoughts.append(piece.text)
            elif isinstance(piece, ToolCall):
                self.output.tool_calls.append(piece)


class RequestReading:
    """The samples of one request, by their numbers."""

    def __init__(
        self, key: int, prompt: str | TokenIds, request: Request, make: MakeStream, tokenizer: Tokenizer
    ) -> None:
        tokens, params, _ = request
        self._params, self._tokenizer = params, tokenizer
        self.samples = [SampleReading(i, params, make(request), tokenizer) for i in range(params.num_samples)]
        self.open = set(range(params.num_samples))
        text = prompt if isinstance(prompt, str) else None
        self.metrics = RequestMetrics(time.time())
        outputs = [sample.output for sample in self.samples]
        self.output = RequestOutput(str(key), text, tokens, outputs, metrics=self.metrics)

    def take(self, output: Output, end_sample: EndSample) -> bool:
        """Whether a sample is complete by it."""
        if output.prompt_scores is not None:
            tokenizer = self._tokenizer if self._params.detokenize else None
            told = (logprobs_of(score, tokenizer) for score in ScoreList.of(output.prompt_scores) if score)
            self.output.prompt_logprobs = [None, *told]
        if output.token is None or output.sample not in self.open:
            return False
        self.output.num_cached_tokens = max(self.output.num_cached_tokens, output.num_cached)
        self.metrics.took(time.time())
        sample = self.samples[output.sample]
        if sample.take(output.token, output.finish, output.score):
            end_sample(output.key, output.sample)
        if not sample.output.finished():
            return False
        self.open.remove(output.sample)
        if not self.open:
            self._complete()
        return True

    def shown(self) -> RequestOutput | None:
        """As the parameters' `output_kind` says; None: nothing yet, or nothing new."""
        params, kind = self._params, self._params.output_kind
        if kind is RequestOutputKind.FINAL_ONLY or params.best_of or params.beam_width:  # the best are known in the end
            return self.output if self.output.finished else None
        shown = self.news() if kind is RequestOutputKind.DELTA else self.so_far()
        return shown if any(output.token_ids for output in shown.outputs) else None

    def so_far(self) -> RequestOutput:
        return replace(self.output, outputs=[sample.so_far() for sample in self.samples])

    def news(self) -> RequestOutput:
        found = [sample.news() for sample in self.samples]
        return replace(self.output, outputs=[each for each in found if each is not None])

    def _complete(self) -> None:
        self.output.finished = True
        self.metrics.finished_time = self.metrics.last_token_time
        if self._params.best_of:
            best = best_samples([sample.scores for sample in self.samples], self._params.n)
            self.output.outputs = [replace(self.samples[i].output, index=place) for place, i in enumerate(best)]


class Completing:
    """`keys`: those of the requests, as outputs name them. `makers`: one for each request."""

    def __init__(
        self,
        prompts: Sequence[str | TokenIds],
        requests: Sequence[Request],
        keys: Sequence[int],
        makers: Sequence[MakeStream],
        tokenizer: Tokenizer,
        end_sample: EndSample,
    ) -> None:
        self._end_sample = end_sample
        self.readings = {
            key: RequestReading(key, prompt, request, make, tokenizer)
            for key, prompt, request, make in zip(keys, prompts, requests, makers, strict=True)
        }
        self._num_open = sum(len(reading.open) for reading in self.readings.values())

    @property
    def is_over(self) -> bool:
        return not self._num_open

    def take(self, output: Output) -> bool:
        """Whether a sample is complete by it."""
        raise_failure(output)
        is_complete = self.readings[output.key].take(output, self._end_sample)
        self._num_open -= is_complete
        return is_complete

    def outputs(self) -> list[RequestOutput]:
        """In the order of their prompts, once it is over."""
        return [reading.output for reading in self.readings.values()]


def raise_failure(output: Output) -> None:
    if output.error is not None:
        if output.error_field is not None:
            raise InvalidRequest(output.error_field, output.error)
        raise ChairliftError(output.error)
