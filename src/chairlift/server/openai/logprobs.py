"""Scores of tokens in the three forms that OpenAI clients read.

Always: a number that JSON cannot hold is sent as -9999. A token that is not text on its own is written
`bytes:\\xe2\\x80`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import msgspec

from chairlift.core.score import TokenScore
from chairlift.server.answer import Answer
from chairlift.server.openai.objects import (
    ChatLogprob,
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    TopLogprob,
)
from chairlift.text.detokenize import Detokenizer, last_bytes
from chairlift.text.tokenizer import Tokenizer

_AT_ONCE = 1024  # scores that are made before other requests run
_LEAST = -9999.0
_encode = msgspec.json.Encoder().encode


def token_text(tokenizer: Tokenizer, token: int) -> str:
    spelled = tokenizer.spelling[token]
    try:
        return spelled.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)


def _number(logprob: float) -> float:
    return logprob if logprob > _LEAST else _LEAST  # NaN compares false


class CompletionScores:
    """The parallel lists of one choice, chunk after chunk. `before`: the last bytes of what its text continues.
    `prompt`: whose lists go before the first, which is to be told in pieces then."""

    def __init__(
        self, tokenizer: Tokenizer, before: bytes, skip_special: bool, prompt: "PromptLists | None" = None
    ) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, before, skip_special)
        self._prompt = prompt
        self.offset = 0

    def build(self, tokens: Sequence[int], scores: Sequence[TokenScore | None]) -> CompletionLogprobs:
        return CompletionLogprobs(**{name: make(tokens, scores) for name, make in self._makers.items()})

    def pieces(self, tokens: Sequence[int], scores: Sequence[TokenScore | None]) -> Iterator[bytes]:
        """The JSON of what `build` makes, behind the prompt's."""
        prompt, self._prompt = self._prompt, None
        before = b"{"
        for name in self._makers:
            yield before + b'"%b":[' % name.encode()
            yield from _joined(() if prompt is None else prompt.of(name, self), self.of(name, tokens, scores))
            before = b"],"
        yield b"]}"

    def of(self, name: str, tokens: Sequence[int], scores: Sequence[TokenScore | None]) -> Iterator[bytes]:
        """One of the lists, without its brackets."""
        make = self._makers[name]
        return (_encode(make(tokens[run], scores[run]))[1:-1] for run in _runs(scores))

    @property
    def _makers(self) -> dict[str, Callable[[Sequence[int], Sequence[TokenScore | None]], list[Any]]]:
        return {
            "tokens": lambda tokens, scores: [token_text(self._tokenizer, token) for token in tokens],
            "token_logprobs": lambda tokens, scores: [score and _number(score.logprob) for score in scores],
            "top_logprobs": lambda tokens, scores: [score and self._top(score) for score in scores],
            "text_offset": lambda tokens, scores: [self._advance(token) for token in tokens],
        }

    def _top(self, score: TokenScore) -> dict[str, float]:
        top = {token_text(self._tokenizer, token): _number(logprob) for token, logprob in score.top}
        top.setdefault(token_text(self._tokenizer, score.token), _number(score.logprob))
        return top

    def _advance(self, token: int) -> int:
        start = self.offset
        self.offset += len(self._detokenizer.push(token))
        return start


class PromptLists:
    """The lists of a prompt, made in pieces by the first choice that shows them, and kept for the others."""

    def __init__(self, tokenizer: Tokenizer, answer: Answer) -> None:
        self._answer = answer
        self._own = CompletionScores(tokenizer, b"", answer.params.skip_special_tokens)
        self._num_left = answer.params.n  # choices that have not shown them
        self._kept: dict[str, list[bytes]] = {}

    def of(self, name: str, choice: CompletionScores) -> Iterator[bytes]:
        """To be read to its end; then the choice's own offsets are behind the prompt's."""
        if name in self._kept:
            yield from self._kept[name]
        else:
            yield from self._made(name)
        if name == "text_offset":  # the last
            choice.offset = self._own.offset
            self._num_left -= 1
            if not self._num_left:
                self._kept.clear()

    def _made(self, name: str) -> Iterator[bytes]:
        prompt, made = self._answer.prompt, list[bytes]()
        for piece in chain(
            self._own.of(name, prompt[:1], [None]), self._own.of(name, prompt[1:], self._answer.prompt_scores)
        ):
            if self._num_left > 1:
                made.append(piece)
            yield piece
        self._kept[name] = made


def chat_logprobs(tokenizer: Tokenizer, scores: Sequence[TokenScore | None]) -> ChatLogprobs:
    return ChatLogprobs([_chat_logprob(tokenizer, score) for score in scores if score is not None])


def _chat_logprob(tokenizer: Tokenizer, score: TokenScore) -> ChatLogprob:
    chosen = _top_logprob(tokenizer, score.token, score.logprob)
    top = [_top_logprob(tokenizer, token, logprob) for token, logprob in score.top]
    return ChatLogprob(chosen.token, chosen.logprob, chosen.bytes, top)


def _top_logprob(tokenizer: Tokenizer, token: int, logprob: float) -> TopLogprob:
    return TopLogprob(token_text(tokenizer, token), _number(logprob), list(tokenizer.spelling[token]))


def chat_pieces(tokenizer: Tokenizer, scores: Sequence[TokenScore | None]) -> Iterator[bytes]:
    """The JSON of what `chat_logprobs` makes."""
    yield b'{"content":['
    yield from _joined(_encode(chat_logprobs(tokenizer, scores[run]).content)[1:-1] for run in _runs(scores))
    yield b'],"refusal":null}'


def prompt_logprobs(tokenizer: Tokenizer, scores: Sequence[TokenScore | None]) -> Iterator[bytes]:
    """The JSON of `PromptLogprobs` in pieces: one map per prompt token, by token id; null for the first."""
    yield b"["
    made = (
        _encode([_prompt_logprob(tokenizer, score) for score in scores[run] if score is not None])[1:-1]
        for run in _runs(scores)
    )
    yield from _joined([b"null"], made)
    yield b"]"


def _runs(scores: Sequence[TokenScore | None]) -> Iterator[slice]:
    """Parts that are made at once; others run between them."""
    last = scores[-1] if scores else None
    at_once = max(1, _AT_ONCE // (1 + (0 if last is None else len(last.top))))
    return (slice(start, start + at_once) for start in range(0, len(scores), at_once))


def _joined(*lists: Iterable[bytes]) -> Iterator[bytes]:
    comma = b""
    for part in chain(*lists):
        if part:
            yield comma + part
            comma = b","


def _prompt_logprob(tokenizer: Tokenizer, score: TokenScore) -> dict[str, PromptLogprob]:
    ranked = [(token, logprob, rank) for rank, (token, logprob) in enumerate(score.top, 1)]
    if all(token != score.token for token, _ in score.top):
        ranked.append((score.token, score.logprob, score.rank))
    return {
        str(token): PromptLogprob(_number(logprob), rank, token_text(tokenizer, token))
        for token, logprob, rank in ranked
    }


class ShownPrompt:
    """What the choices of a prompt show of it, made once for all of them: when the first needs it."""

    def __init__(self, tokenizer: Tokenizer, answer: Answer) -> None:
        self.answer = answer
        self._tokenizer = tokenizer
        self._skips_special = answer.params.skip_special_tokens
        self._num_left = answer.params.n  # choices that have not shown its scores
        self._scores: list[bytes] | None = None

    @cached_property
    def text(self) -> str:
        return self._tokenizer.decode(self.answer.prompt, self._skips_special)

    def scores(self) -> Iterator[bytes]:
        """The JSON of `PromptLogprobs`, to be read to its end."""
        self._num_left -= 1
        if self._scores is not None:
            yield from self._scores
        elif not self._num_left:
            yield from prompt_logprobs(self._tokenizer, self.answer.prompt_scores)
        else:
            made = []
            for piece in prompt_logprobs(self._tokenizer, self.answer.prompt_scores):
                made.append(piece)
                yield piece
            self._scores = made
        if not self._num_left:
            self._scores = None

    def choice_scores(self, echo: bool) -> CompletionScores:
        """The scores of one more choice; `echo`: behind those of the prompt."""
        return CompletionScores(self._tokenizer, self._last_bytes, self._skips_special, self._lists if echo else None)

    @cached_property
    def _last_bytes(self) -> bytes:
        return last_bytes(self._tokenizer, self.answer.prompt, self._skips_special)

    @cached_property
    def _lists(self) -> PromptLists:
        return PromptLists(self._tokenizer, self.answer)
