"""Matchers: which tokens may come next in answers that are held to a shape, or to some tokens, as rows of bits.

Always: a matcher's state follows from its request's shape and output tokens alone. So matchers are a cache: one that is
gone after a preemption, a swap or an engine's death is made again from the plan. A shape that takes too much work fails
its own request. Knows nothing of logits or devices.

    masks [rows, words]: bit t % 32 of word t // 32 says whether token t may come
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer
from numpy.typing import NDArray

from chairlift.core.errors import InvalidRequest
from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan
from chairlift.core.request import Request
from chairlift.core.structured import NO_FURTHER, Structured
from chairlift.text.structured.grammar import matcher_of

_MAX_GRAMMARS = 256  # that are kept ready for further requests with the same shape
_GROUP = 32  # masks that are made side by side, between two calls of the hook: a second at most on one core
_ANY = np.int32(-1)  # all tokens of a word
NO_MATCHERS = "structured answers need matchers, which this runner was made without"


OnMask = Callable[[], None]  # called before each mask or group of them


def _nothing() -> None:
    """The hook of a run without one."""


class Masks(NamedTuple):
    words: NDArray[np.int32]  # [R, W]
    failed: dict[int, str]  # rows whose shape cannot be followed any further, and why; any token may come


class _Followed:
    __slots__ = ("matcher", "num_tokens")

    def __init__(self, matcher: LLMatcher) -> None:
        self.matcher = matcher
        self.num_tokens = 0  # of the output, that it has consumed


class Matchers:
    def __init__(self, vocabulary: Callable[[], LLTokenizer], vocab_size: int, max_kept: int) -> None:
        """The vocabulary is made beside the caller. `max_kept`: requests that are followed at the same time."""
        self._builder = ThreadPoolExecutor(1, "grammars")
        self._vocabulary = self._builder.submit(vocabulary)
        self._num_words = -(-vocab_size // 32)
        self._max_kept = max_kept
        self._grammars: OrderedDict[Structured, Future[LLMatcher]] = OrderedDict()
        self._followed: OrderedDict[RequestId, _Followed] = OrderedDict()
        self._executor: LLExecutor | None = None
        self._step = 0

    def expect(self, plan: StepPlan) -> None:
        """Begins to make the grammars of requests that compute their prompts, while they do."""
        for chunk in plan.chunks[plan.num_decoding :]:
            if (structured := chunk.request.params.structured_outputs) is not None:
                self._grammar(structured)

    def masks(self, step: int, rows: Sequence[tuple[Request, Sequence[int]]], on_mask: OnMask = _nothing) -> Masks:
        """rows: requests with the output that their next tokens come after; rows of one request, which has drafts,
        follow each other. A step that does not count on from the last is another scheduler's, with the same ids."""
        if step <= self._step:
            self._followed.clear()
        self._step = step
        masks = Masks(np.full((len(rows), self._num_words), _ANY, np.int32), {})
        matchers: list[tuple[LLMatcher, int]] = []
        last: RequestId | None = None
        for index, (request, output) in enumerate(rows):
            on_mask()
            try:
                if request.params.structured_outputs is None:
                    continue
                if request.id == last:
                    matcher = _after_drafts(matchers[-1][0], rows[index - 1][1], output)
                else:
                    matcher = self._follow(request, output)
            except InvalidRequest as error:
                masks.failed[index] = error.message if error.message.startswith(NO_FURTHER) else str(error)
                continue
            last = request.id
            matchers.append((matcher, index))
        for first in range(0, len(matchers), _GROUP):
            on_mask()
            self._fill(masks.words, matchers[first : first + _GROUP])
        masks.failed.update({index: _fault(matcher) for matcher, index in matchers if matcher.is_error()})
        for index, (request, output) in enumerate(rows):
            if index not in masks.failed and not _leave(masks.words[index], request, output):
                masks.failed[index] = "allowed_token_ids, bad_words and min_tokens leave no token that may come here"
        masks.words[list(masks.failed)] = _ANY
        return masks

    def _fill(self, words: NDArray[np.int32], matchers: list[tuple[LLMatcher, int]]) -> None:
        if len(matchers) == 1:
            [(matcher, index)] = matchers
            matcher.unsafe_compute_mask_ptr(words[index].ctypes.data, words[index].nbytes)
        else:
            self._executor = self._executor or LLExecutor()
            self._executor.unsafe_compute_mask_ptr(matchers, words.ctypes.data, 4 * self._num_words, len(words))

    def _follow(self, request: Request, output: Sequence[int]) -> LLMatcher:
        followed = self._followed.get(request.id)
        if followed is None:
            assert request.params.structured_outputs is not None
            followed = self._followed[request.id] = _Followed(
                self._grammar(request.params.structured_outputs).result().deep_copy()
            )
            while len(self._followed) > self._max_kept:
                self._followed.popitem(last=False)
        self._followed.move_to_end(request.id)
        assert len(output) >= followed.num_tokens  # tokens that were followed are never taken back
        new = list(output[followed.num_tokens :])
        followed.num_tokens = len(output)
        if new and not followed.matcher.consume_tokens(new):
            raise InvalidRequest("structured_outputs", _fault(followed.matcher))
        return followed.matcher

    def _grammar(self, structured: Structured) -> "Future[LLMatcher]":
        found = self._grammars.get(structured)
        if found is None:
            found = self._grammars[structured] = self._builder.submit(self._made, structured)
            if len(self._grammars) > _MAX_GRAMMARS:
                self._grammars.popitem(last=False)
        self._grammars.move_to_end(structured)
        return found

    def _made(self, structured: Structured) -> LLMatcher:
        try:
            vocabulary = self._vocabulary.result()
        except Exception as error:  # a tokenizer that is missing or broken fails these requests alone
            raise InvalidRequest("structured_outputs", f"the model's vocabulary cannot be read: {error}") from error
        matcher = matcher_of(structured, vocabulary)
        if matcher.is_error():
            raise InvalidRequest("structured_outputs", _fault(matcher))
        return matcher


def _leave(words: NDArray[np.int32], request: Request, output: Sequence[int]) -> bool:
    """Takes out what the request's lists leave out; whether any token is left."""
    params = request.params
    if params.allowed_token_ids is None and not params.banned:
        return True
    words &= _kept(params.allowed_token_ids, params.banned, len(words))
    for tokens in params.banned:
        before = len(output) - len(tokens) + 1
        if len(tokens) > 1 and before >= 0 and tuple(output[before:]) == tokens[:-1]:
            words[tokens[-1] // 32] &= ~_bit(tokens[-1])
    if len(output) >= params.min_tokens:
        return bool(words.any())
    left = words.copy()
    for token in request.stop_ids:
        left[token // 32] &= ~_bit(token)
    return bool(left.any())


def _bit(token: int) -> np.int32:
    return np.uint32(1 << token % 32).astype(np.int32)


@lru_cache(maxsize=64)
def _kept(allowed: tuple[int, ...] | None, banned: tuple[tuple[int, ...], ...], num_words: int) -> NDArray[np.int32]:
    """That hold wherever the answer is: what is allowed, without single tokens that are banned."""
    bits = np.full(32 * num_words, allowed is None)
    bits[list(allowed or ())] = True
    bits[[tokens[0] for tokens in banned if len(tokens) == 1]] = False
    return np.packbits(bits, bitorder="little").view(np.int32)


def _after_drafts(matcher: LLMatcher, before: Sequence[int], output: Sequence[int]) -> LLMatcher:
    """The state after some more tokens, drafts that may be wrong: then no later row counts, and its mask may be any."""
    further = matcher.deep_copy()
    further.try_consume_tokens(list(output[len(before) :]))
    return further


def _fault(matcher: LLMatcher) -> str:
    return f"{NO_FURTHER}: {matcher.get_error().splitlines()[0]}"
