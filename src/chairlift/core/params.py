"""How one request wants its tokens chosen, and when it wants to stop.

A value of this type is valid by construction: a bad field raises `InvalidRequest` naming it. The scheduler reads
only the limits; the runner reads the rest; stop strings are the text layer's.
"""

from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from operator import attrgetter
from types import NoneType
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.core.param_types import biases, number, switch, texts, token_ids, whole

MAX_LOGPROBS = 100
MAX_PROMPT_LOGPROBS = 20  # for each token of a prompt, which may be long
MAX_SAMPLES = 128
MAX_BEAMS = 32
# Of a request; each is looked at in every step of every sample.
MAX_BIASES = 1024
MAX_STOP_IDS = 128
# What a beam search has no use for, and the value that asks for nothing.
_NOT_IN_BEAMS = {
    "best_of": 0, "min_tokens": 0, "logit_bias": {}, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "prompt_logprobs": None,
}  # fmt: skip
# field: (types that need no reading, what reads any other)
_TYPES: dict[str, tuple[tuple[type, ...], Callable[[str, object], Any]]] = {
    **dict.fromkeys(("max_tokens", "seed", "logprobs", "prompt_logprobs"), ((int, NoneType), whole)),
    **dict.fromkeys(("min_tokens", "top_k", "n", "best_of", "beam_width"), ((int,), whole)),
    **dict.fromkeys(("temperature", "top_p", "min_p", "length_penalty"), ((float, int), number)),
    **dict.fromkeys(("repetition_penalty", "presence_penalty", "frequency_penalty"), ((float, int), number)),
    **dict.fromkeys(("include_stop_str_in_output", "ignore_eos", "skip_special_tokens"), ((bool,), switch)),
    "stop": ((), texts), "stop_token_ids": ((), token_ids), "logit_bias": ((), biases),
}  # fmt: skip
_given = attrgetter(*_TYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    max_tokens: int | None = None  # None: until the model stops or its context is full
    min_tokens: int = 0
    temperature: float = 1.0  # 0 is greedy
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    n: int = 1
    seed: int | None = None  # None: the server draws one
    stop: tuple[str, ...] = ()  # a plain string is that one
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None  # None: none; k: the chosen token's and the k most likely
    prompt_logprobs: int | None = None
    best_of: int = 0  # samples made, of which the n likeliest per token are given; 0: n
    # A beam search instead of sampling, of this width; its n best answers are given. 0: none.
    beam_width: int = 0
    length_penalty: float = 1.0  # of a beam search: scores are divided by length to this power

    def __post_init__(self) -> None:
        # First: of what is refused for its length nobody looks at each.
        for name, most in (("logit_bias", MAX_BIASES), ("stop_token_ids", MAX_STOP_IDS)):
            check_size(name, getattr(self, name), most)
        for value, (name, (plain, read)) in zip(_given(self), _TYPES.items(), strict=True):
            if type(value) not in plain:
                object.__setattr__(self, name, read(name, value))
        if self.max_tokens is not None:
            _at_least("max_tokens", self.max_tokens, 1)
        _at_least("min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequest("min_tokens", f"{self.min_tokens} is more than max_tokens {self.max_tokens}")
        _within("temperature", self.temperature, 0.0, 100.0)
        _at_least("top_k", self.top_k, 0)
        _within("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise InvalidRequest("top_p", "must be above 0; for greedy output set temperature to 0")
        _within("min_p", self.min_p, 0.0, 1.0)
        _within("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        _within("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _within("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        for token, bias in self.logit_bias.items():
            _at_least("logit_bias", token, 0)
            _within(f"logit_bias[{token}]", bias, -100.0, 100.0)
        _at_least("n", self.n, 1)
        _at_most("n", self.n, MAX_SAMPLES)
        if self.seed is not None:
            _within("seed", self.seed, -(2**63), 2**64 - 1)
        if self.best_of:
            _at_least("best_of", self.best_of, self.n)
            _at_most("best_of", self.best_of, MAX_SAMPLES)
        if self.beam_width:
            self._check_beams()
        if any(text == "" for text in self.stop):
            raise InvalidRequest("stop", "a stop string must not be empty")
        for token in self.stop_token_ids:
            _at_least("stop_token_ids", token, 0)
        for name, count, most in (
            ("logprobs", self.logprobs, MAX_LOGPROBS),
            ("prompt_logprobs", self.prompt_logprobs, MAX_PROMPT_LOGPROBS),
        ):
            if count is not None:
                _at_least(name, count, 0)
                _at_most(name, count, most)

    def _check_beams(self) -> None:
        _at_least("beam_width", self.beam_width, 1)
        _at_most("beam_width", self.beam_width, MAX_BEAMS)
        _within("length_penalty", self.length_penalty, -10.0, 10.0)
        if self.n > self.beam_width:
            raise InvalidRequest("n", f"{self.n} answers are more than beam_width {self.beam_width}")
        for name, neutral in _NOT_IN_BEAMS.items():
            if getattr(self, name) != neutral:
                raise InvalidRequest(name, "is not available in a beam search")

    @property
    def num_samples(self) -> int:
        """Answers that are made; `n` of them are given."""
        return max(self.n, self.best_of)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def is_shaped(self) -> bool:
        """Whether logits are changed before a token is chosen."""
        return bool(self.min_tokens or self.logit_bias or self.has_penalties)

    @property
    def is_filtered(self) -> bool:
        """Whether some tokens are left out before one is drawn."""
        return bool(self.top_k or self.top_p < 1.0 or self.min_p)

    @property
    def has_penalties(self) -> bool:
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


def check_size(name: str, given: object, most: int) -> None:
    """Of a field that holds several, whatever they are."""
    if isinstance(given, Sized) and len(given) > most:
        raise InvalidRequest(name, f"must hold at most {most} token ids, got {len(given)}")


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise InvalidRequest(name, f"must be at least {least}, got {value}")


def _at_most(name: str, value: int, most: int) -> None:
    if value > most:
        raise InvalidRequest(name, f"must be at most {most}, got {value}")


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # so is NaN refused
        raise InvalidRequest(name, f"must be between {least} and {most}, got {str(value)[:40]}")
