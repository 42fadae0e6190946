"""What the Python interface returns. Names are vLLM's where it has the thing, so that its scripts find them.

Lists are the caller's own: nothing changes them afterwards.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chairlift.core.score import TokenScore
from chairlift.text.embedding.vectors import Vectors
from chairlift.text.responses.reading.gathered import ToolCall
from chairlift.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Logprob:
    """How likely a token was: before temperature, penalties and bias."""

    logprob: float
    rank: int | None = None  # 1: the most likely
    decoded_token: str | None = None  # None where no text was asked for


@dataclass(slots=True)
class CompletionOutput:
    """One answer to a prompt."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None  # of all tokens, if params.logprobs is set
    logprobs: list[dict[int, Logprob]] | None = None  # the same, one for each token: itself, then the most likely ones
    finish_reason: str | None = None  # stop, length or tool_calls; None: it goes on
    stop_reason: int | str | None = None  # the stop string or token that ended it; None for the model's own end
    reasoning: str = ""  # of a chat, what the model thought before it answered
    tool_calls: list[ToolCall] = field(default_factory=list)  # of a chat

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestMetrics:
    """When things happened, in seconds since 1970."""

    arrival_time: float
    first_token_time: float | None = None
    last_token_time: float | None = None
    finished_time: float | None = None
    num_generation_tokens: int = 0  # of all samples

    @property
    def first_token_latency(self) -> float:
        """0: there is none yet."""
        return 0.0 if self.first_token_time is None else self.first_token_time - self.arrival_time

    def took(self, now: float) -> None:
        self.first_token_time = now if self.first_token_time is None else self.first_token_time
        self.last_token_time = now
        self.num_generation_tokens += 1


@dataclass(slots=True)
class RequestOutput:
    """The answers to a prompt, best or first one first."""

    request_id: str
    prompt: str | None  # None if it was given as tokens
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = False
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None  # one for each token; None for the first
    num_cached_tokens: int = 0  # of the prompt, found in the prefix cache
    metrics: RequestMetrics | None = None

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def reasoning(self) -> str:
        return self.outputs[0].reasoning

    @property
    def tool_calls(self) -> list[ToolCall]:
        return self.outputs[0].tool_calls


@dataclass(frozen=True, slots=True)
class BeamSearchSequence:
    """One of the texts that a beam search found, with its prompt."""

    text: str
    tokens: list[int]
    finish_reason: str | None
    stop_reason: int | str | None


@dataclass(frozen=True, slots=True)
class BeamSearchOutput:
    sequences: list[BeamSearchSequence]  # best first


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingOutput:
    vector: Vectors  # float32 [dimensions]

    @property
    def embedding(self) -> list[float]:
        numbers: list[float] = self.vector.tolist()
        return numbers

    @property
    def hidden_size(self) -> int:
        return len(self.vector)

    def __repr__(self) -> str:
        return f"EmbeddingOutput(hidden_size={self.hidden_size})"


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingRequestOutput:
    """The vector of a text. numpy takes it for one, and a list of them for a matrix: `np.asarray(llm.embed(texts))`."""

    request_id: str
    prompt_token_ids: list[int]
    outputs: EmbeddingOutput
    finished: bool = True

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Vectors:
        made: Vectors = np.array(self.outputs.vector, dtype, copy=copy)
        return made


@dataclass(frozen=True, slots=True)
class ScoringOutput:
    score: float


@dataclass(frozen=True, slots=True)
class ScoringRequestOutput:
    """How well a document answers a query."""

    request_id: str
    outputs: ScoringOutput
    finished: bool = True

    def __float__(self) -> float:
        return self.outputs.score


def logprobs_of(score: TokenScore, tokenizer: Tokenizer | None) -> dict[int, Logprob]:
    """The token first, then the most likely ones. Without a tokenizer there are no texts."""

    def told(token: int, logprob: float, rank: int) -> Logprob:
        return Logprob(logprob, rank, None if tokenizer is None else tokenizer.piece(token))

    found = {score.token: told(score.token, score.logprob, score.rank)}
    for rank, (token, logprob) in enumerate(score.top, 1):
        found.setdefault(token, told(token, logprob, rank))
    return found
