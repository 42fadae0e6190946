"""Matchers: which tokens may come next in answers that are held to a shape, or to some tokens, as rows of bits.

Always: a matcher's state follows from its request's shape and output tokens alone. So matchers are a cache: one that is
gone after a preemption, a swap or an engine's death is made again from the plan. Knows nothing of logits or devices.
A mask of rules that a client wrote may take `MASK_S`, and all of a step `STEP_S`, of processor time. A shape beyond the
first for long fails its requests; beyond the second the dearest does.

    masks [rows, words]: bit t % 32 of word t // 32 says whether token t may come
"""

import time
from collections import Counter, OrderedDict
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
from chairlift.text.structured.grammar import has_rules, matcher_of

_MAX_GRAMMARS, _MAX_SOURCES = 256, 2 * 2**20  # that are kept ready for the same shape; characters of them
_GROUP = 32  # masks that are made side by side, between two calls of the hook: a second at most on one core
_ANY = np.int32(-1)  # all tokens of a word
MASK_S, STEP_S = 0.02, 0.5  # budgets, of rules that a client wrote
_OVER_S = 0.2  # that the masks of a request may take beyond theirs
_WAIT_S = 1.0  # for a grammar, between two calls of the hook
NO_MATCHERS = "structured answers need matchers, which this runner was made without"


OnMask = Callable[[], None]  # called before each mask or group of them


def _nothing() -> None:
    """The hook of a run without one."""


class Masks(NamedTuple):
    words: NDArray[np.int32]  # [R, W]
    failed: dict[int, str]  # rows whose shape cannot be followed any further, and why; any token may come


class _Grammar(NamedTuple):
    matcher: LLMatcher  # at the beginning
    has_rules: bool  # that a client wrote


class _Followed:
    __slots__ = ("has_rules", "matcher", "num_tokens", "over_s")

    def __init__(self, grammar: _Grammar) -> None:
        self.matcher = grammar.matcher.deep_copy()
        self.has_rules = grammar.has_rules
        self.num_tokens = 0  # of the output, that it has consumed
        self.over_s = 0.0  # beyond the budget of its masks


class Matchers:
    def __init__(self, vocabulary: Callable[[], LLTokenizer], vocab_size: int, max_kept: int) -> None:
        """The vocabulary is made beside the caller. `max_kept`: requests that are followed at the same time."""
        self._builder = ThreadPoolExecutor(1, "grammars")
        self._vocabulary = self._builder.submit(vocabulary)
        self._num_words = -(-vocab_size // 32)
        self._max_kept = max_kept
        self._grammars: OrderedDict[Structured, Future[_Grammar]] = OrderedDict()
        self._num_characters = 0  # of the shapes of grammars
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
        timed: list[tuple[LLMatcher, int]] = []  # of rules that clients wrote
        last: tuple[RequestId, LLMatcher] | None = None
        for index, (request, output) in enumerate(rows):
            on_mask()
            try:
                if request.params.structured_outputs is None:
                    continue
                if last is not None and request.id == last[0]:
                    matcher = _after_drafts(last[1], rows[index - 1][1], output)
                else:
                    matcher = self._follow(request, output, on_mask)
            except InvalidRequest as error:
                masks.failed[index] = error.message if error.message.startswith(NO_FURTHER) else str(error)
                continue
            last = (request.id, matcher)
            (timed if self._followed[request.id].has_rules else matchers).append((matcher, index))
        for first in range(0, len(matchers), _GROUP):
            on_mask()
            self._fill(masks.words, matchers[first : first + _GROUP])
        self._fill_timed(masks, timed, rows, on_mask)
        masks.failed.update({index: _fault(matcher) for matcher, index in matchers + timed if matcher.is_error()})
        for index, (request, output) in enumerate(rows):
            if index not in masks.failed and not _leave(masks.words[index], request, output):
                masks.failed[index] = "allowed_token_ids, bad_words and min_tokens leave no token that may come here"
        masks.words[list(masks.failed)] = _ANY
        return masks

    def _fill_timed(
        self, masks: Masks, timed: list[tuple[LLMatcher, int]], rows: Sequence[tuple[Request, Sequence[int]]],
        on_mask: OnMask,
    ) -> None:  # fmt: skip
        """One after the other; what is beyond a budget fails, with all requests of the same shape."""
        spent: Counter[Structured] = Counter()  # seconds
        refused: dict[Structured, str] = {}
        for matcher, index in timed:
            request, structured = rows[index][0], rows[index][0].params.structured_outputs
            assert structured is not None
            if structured in refused:
                continue
            on_mask()
            taken_s = _timed(lambda matcher=matcher, index=index: self._fill(masks.words, [(matcher, index)]))  # type: ignore[misc]
            spent[structured] += taken_s  # type: ignore[assignment]
            followed = self._followed[request.id]
            followed.over_s = max(0.0, followed.over_s + taken_s - MASK_S)
            if followed.over_s > _OVER_S:
                refused[structured] = _too_dear(f"a mask of its rules takes {1000 * taken_s:.0f} ms", MASK_S)
            elif sum(spent.values()) > STEP_S:
                [(dearest, its_s)] = spent.most_common(1)
                refused[dearest] = _too_dear(f"masks of its rules take {1000 * its_s:.0f} ms of a step", STEP_S)
                del spent[dearest]
        for _, index in timed:
            why = refused.get(rows[index][0].params.structured_outputs)  # type: ignore[arg-type]
            if why is not None:
                masks.failed[index] = why

    def _fill(self, words: NDArray[np.int32], matchers: list[tuple[LLMatcher, int]]) -> None:
        if len(matchers) == 1:
            [(matcher, index)] = matchers
            matcher.unsafe_compute_mask_ptr(words[index].ctypes.data, words[index].nbytes)
        else:
            self._executor = self._executor or LLExecutor()
            self._executor.unsafe_compute_mask_ptr(matchers, words.ctypes.data, 4 * self._num_words, len(words))

    def _follow(self, request: Request, output: Sequence[int], on_mask: OnMask) -> LLMatcher:
        followed = self._followed.get(request.id)
        if followed is None:
            assert request.params.structured_outputs is not None
            followed = self._followed[request.id] = _Followed(
                _awaited(self._grammar(request.params.structured_outputs), on_mask)
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

    def _grammar(self, structured: Structured) -> "Future[_Grammar]":
        found = self._grammars.get(structured)
        if found is None:
            found = self._grammars[structured] = self._builder.submit(self._made, structured)
            self._num_characters += len(structured.source)
            while len(self._grammars) > _MAX_GRAMMARS or self._num_characters > _MAX_SOURCES:
                self._num_characters -= len(self._grammars.popitem(last=False)[0].source)
        self._grammars.move_to_end(structured)
        return found

    def _made(self, structured: Structured) -> _Grammar:
        try:
            vocabulary = self._vocabulary.result()
        except Exception as error:  # a tokenizer that is missing or broken fails these requests alone
            raise InvalidRequest("structured_outputs", f"the model's vocabulary cannot be read: {error}") from error
        matcher = matcher_of(structured, vocabulary)
        if matcher.is_error():
            raise InvalidRequest("structured_outputs", _fault(matcher))
        return _Grammar(matcher, has_rules(structured))


def _awaited(made: "Future[_Grammar]", on_mask: OnMask) -> _Grammar:
    while True:
        try:
            return made.result(_WAIT_S)
        except TimeoutError:
            on_mask()


def _timed(call: Callable[[], object]) -> float:
    """Seconds of processor time of this thread."""
    began = time.thread_time()
    call()
    return time.thread_time() - began


def _too_dear(what: str, budget_s: float) -> str:
    why = f"{what}, the budget is {1000 * budget_s:.0f} ms; write rules that fit a text in fewer ways"
    return f"{NO_FURTHER}: {why}"


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
