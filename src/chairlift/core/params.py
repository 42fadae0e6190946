"""How the tokens of a request are chosen, where they end, and how the Python interface shows them.

Valid by construction: a bad field raises `InvalidRequest` naming it. Only users change one that is made; the Python
interface takes a copy of theirs (`replace`), which is checked again. HTTP bodies, flags and documents are made from the
fields here. The scheduler reads the limits, the text layer the stop strings, the runner the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import wraps
from operator import attrgetter
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.core.param_types import RequestOutputKind, param, params_of
from chairlift.core.structured import Structured

MAX_LOGPROBS = 100
MAX_PROMPT_LOGPROBS = 20  # for each token of a prompt, which may be long
MAX_SAMPLES = 128
MAX_BEAMS = 32
# Of a request; each is looked at in every step of every sample.
MAX_BIASES = 1024
MAX_STOP_IDS = 128
MAX_ALLOWED = 2**18  # beyond most vocabularies; looked at once
# What a beam search has no use for, and the value that asks for nothing.
_NOT_IN_BEAMS = {
    "best_of": 0, "min_tokens": 0, "logit_bias": {}, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "prompt_logprobs": None, "structured_outputs": None, "allowed_token_ids": None,
    "bad_words": (),
}  # fmt: skip
# What vLLM's parameters have beside these, and what to use.
_ADVICE = {
    "guided_decoding": "use structured_outputs=Structured.json_schema(...), or StructuredOutputsParams(...)",
    "logits_processors": "code of your own is not run in a step; use logit_bias, allowed_token_ids or bad_words",
    "truncate_prompt_tokens": "prompts are never cut; cut the token ids, and send {'prompt_token_ids': ids}",
    "extra_args": "there are none",
    "spaces_between_special_tokens": "texts are those of the tokenizer; leave it out",
    "use_beam_search": "use beam_width, or LLM.beam_search",
    "logprob_token_ids": "use logprobs, the most likely ones",
    "flat_logprobs": "logprobs are dictionaries; leave it out",
}
_NOT_STRUCTURED = {"ignore_eos": False, "min_tokens": 0}


@dataclass(slots=True, kw_only=True)
class SamplingParams:
    max_tokens: int | None = param(16, "Longest answer in tokens", 1)  # None: as many as fit
    min_tokens: int = param(0, "Tokens before an end or stop token may come", 0)
    temperature: float = param(1.0, "Randomness; 0: always the most likely token", 0.0, 100.0)
    top_k: int = param(0, "Draw from this many of the most likely tokens; 0 or -1: from all", 0)
    top_p: float = param(1.0, "Draw from the most likely tokens of this total probability", 0.0, 1.0)
    min_p: float = param(0.0, "Draw from tokens at least this likely, as a part of the most likely one", 0.0, 1.0)
    repetition_penalty: float = param(
        1.0, "Divide the logits of tokens that prompt or answer hold; 1: do not", 0.01, 100.0
    )
    presence_penalty: float = param(0.0, "Lower the logits of tokens that the answer holds", -2.0, 2.0)
    frequency_penalty: float = param(0.0, "Lower the logits of tokens by how often the answer holds them", -2.0, 2.0)
    logit_bias: dict[int, float] = param(  # noqa: RUF009  (a new one for each)
        dict, "Add to logits, by token id", -100.0, 100.0, max_size=MAX_BIASES
    )
    allowed_token_ids: tuple[int, ...] | None = param(
        None, "Draw from these tokens alone, end tokens too", 0, max_size=MAX_ALLOWED
    )
    bad_words: tuple[str, ...] = param((), "Never write the tokens that spell this text, or any of several")
    n: int = param(1, "Answers to a prompt", 1, MAX_SAMPLES)
    seed: int | None = param(None, "Repeat the same draws; without it they differ each time", -(2**63), 2**64 - 1)
    stop: tuple[str, ...] = param((), "End the answer before this text, or the first of several")
    stop_token_ids: tuple[int, ...] = param((), "End the answer at any of these tokens", 0, max_size=MAX_STOP_IDS)
    include_stop_str_in_output: bool = param(False, "Show the stop text or token that ended the answer")
    ignore_eos: bool = param(False, "Go on after the model's end tokens")
    skip_special_tokens: bool = param(True, "Leave special tokens out of the text")
    logprobs: int | None = param(
        None, "Log-probabilities of the chosen tokens and of this many most likely ones", 0, MAX_LOGPROBS
    )
    prompt_logprobs: int | None = param(None, "The same for the tokens of the prompt", 0, MAX_PROMPT_LOGPROBS)
    best_of: int = param(0, "Make this many samples and give the n most likely per token; 0: n", 0, MAX_SAMPLES)
    beam_width: int = param(0, "Search with this many beams instead of sampling; 0: do not", 0, MAX_BEAMS)
    length_penalty: float = param(1.0, "Divide scores of a beam search by length to this power", -10.0, 10.0)
    structured_outputs: Structured | None = param(  # noqa: RUF009  (a frozen value)
        None, "Hold the answer to a JSON schema or grammar", is_public=False
    )
    banned: tuple[tuple[int, ...], ...] = param((), "Token sequences that spell the bad words", is_public=False)
    detokenize: bool = param(True, "Make text of the tokens", is_public=False)
    output_kind: RequestOutputKind = param(  # noqa: RUF009  (a constant)
        RequestOutputKind.CUMULATIVE, "What each output of a stream shows", is_public=False
    )

    @classmethod
    def from_optional(cls, **given: Any) -> "SamplingParams":
        """What is None is left out."""
        return cls(**{name: value for name, value in given.items() if value is not None})

    def clone(self) -> "SamplingParams":
        return replace(self, logit_bias=dict(self.logit_bias))

    def __post_init__(self) -> None:
        if self.top_k == -1:
            self.top_k = 0
        for stated, value in zip(_STATED, _values(self), strict=True):
            if value is not stated.default:
                read = stated.read(value)
                if read is not value:
                    setattr(self, stated.name, read)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequest("min_tokens", f"{self.min_tokens} is more than max_tokens {self.max_tokens}")
        if self.top_p == 0.0:
            raise InvalidRequest("top_p", "must be above 0; for greedy output set temperature to 0")
        if "" in self.stop:
            raise InvalidRequest("stop", "a stop string must not be empty")
        if self.allowed_token_ids == ():
            raise InvalidRequest("allowed_token_ids", "must not be empty; leave it out for all tokens")
        if "" in self.bad_words:
            raise InvalidRequest("bad_words", "a bad word must not be empty")
        if self.stop and not self.detokenize:
            raise InvalidRequest("stop", "stop strings need the text: leave detokenize on")
        if self.best_of and self.best_of < self.n:
            raise InvalidRequest("best_of", f"must be at least {self.n}, got {self.best_of}")
        if self.structured_outputs is not None:
            self._check_structured()
        if self.beam_width:
            self._check_beams()

    def _check_structured(self) -> None:
        """What would keep an answer from ending where its shape is complete."""
        for name, neutral in _NOT_STRUCTURED.items():
            if getattr(self, name) != neutral:
                raise InvalidRequest(name, "is not available where the answer is held to a shape")

    def _check_beams(self) -> None:
        if self.n > self.beam_width:
            raise InvalidRequest("n", f"{self.n} answers are more than beam_width {self.beam_width}")
        for name, neutral in _NOT_IN_BEAMS.items():
            if getattr(self, name) != neutral:
                raise InvalidRequest(name, "is not available in a beam search")

    @property
    def num_samples(self) -> int:
        """Answers that are made; `n` of them are given."""
        return max(self.n, self.best_of)

    def banning(self, encode: Callable[[str], Sequence[int]]) -> "SamplingParams":
        """With the tokens that spell the bad words, alone and after a space, as `encode` makes them."""
        if not self.bad_words:
            return self
        spelled = [
            tuple(encode(form)) for word in self.bad_words for form in (word.lstrip() or word, " " + word.lstrip())
        ]
        return replace(self, banned=tuple(dict.fromkeys(tokens for tokens in spelled if tokens)))

    @property
    def is_masked(self) -> bool:
        """Whether some tokens may not come, by a shape, a list or words."""
        return self.structured_outputs is not None or self.allowed_token_ids is not None or bool(self.banned)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def is_filtered(self) -> bool:
        """Whether some tokens are left out before one is drawn."""
        return any(getattr(self, name) != neutral for name, neutral in FILTERS.items())

    @property
    def has_penalties(self) -> bool:
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


PARAMS = params_of(SamplingParams)  # by name


def _advising(make: Callable[..., None]) -> Callable[..., None]:
    """Names that are no field's, most of them vLLM's, get an advice instead of a bare error."""

    @wraps(make)
    def advised(self: SamplingParams, **given: Any) -> None:
        try:
            make(self, **given)
        except TypeError:
            for name in given:
                if name not in PARAMS:
                    raise InvalidRequest(name, _ADVICE.get(name, f"is no sampling parameter{_near(name)}")) from None
            raise

    return advised


def _near(name: str) -> str:
    close = get_close_matches(name, PARAMS, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


SamplingParams.__init__ = _advising(SamplingParams.__init__)  # type: ignore[method-assign]
# What leaves tokens out before one is drawn, and the value that leaves out none; in the order of the sampling table.
FILTERS: dict[str, float] = {name: PARAMS[name].default for name in ("top_k", "top_p", "min_p")}
_STATED, _values = tuple(PARAMS.values()), attrgetter(*PARAMS)
