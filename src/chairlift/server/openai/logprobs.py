"""Scores of tokens in the three forms that OpenAI clients read.

Always: a number that JSON cannot hold is sent as -9999. A token that is not text on its own is written
`bytes:\\xe2\\x80`.
"""

from collections.abc import Sequence

from chairlift.core.score import TokenScore
from chairlift.server.openai.objects import (
    ChatLogprob,
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TopLogprob,
)
from chairlift.text.detokenize import Detokenizer, last_bytes
from chairlift.text.tokenizer import Tokenizer

_LEAST = -9999.0


def token_text(tokenizer: Tokenizer, token: int) -> str:
    spelled = tokenizer.spelling[token]
    try:
        return spelled.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)


def _number(logprob: float) -> float:
    return logprob if logprob > _LEAST else _LEAST  # NaN compares false


class CompletionScores:
    """The parallel lists of one choice, chunk after chunk. `before`: the tokens that its text continues."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int], skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, last_bytes(tokenizer, before, skip_special), skip_special)
        self._offset = 0

    def build(self, tokens: Sequence[int], scores: Sequence[TokenScore | None]) -> CompletionLogprobs:
        return CompletionLogprobs(
            [token_text(self._tokenizer, token) for token in tokens],
            [None if score is None else _number(score.logprob) for score in scores],
            [None if score is None else self._top(score) for score in scores],
            [self._advance(token) for token in tokens],
        )

    def _top(self, score: TokenScore) -> dict[str, float]:
        top = {token_text(self._tokenizer, token): _number(logprob) for token, logprob in score.top}
        top.setdefault(token_text(self._tokenizer, score.token), _number(score.logprob))
        return top

    def _advance(self, token: int) -> int:
        start = self._offset
        self._offset += len(self._detokenizer.push(token))
        return start


def chat_logprobs(tokenizer: Tokenizer, scores: Sequence[TokenScore | None]) -> ChatLogprobs:
    return ChatLogprobs([_chat_logprob(tokenizer, score) for score in scores if score is not None])


def _chat_logprob(tokenizer: Tokenizer, score: TokenScore) -> ChatLogprob:
    chosen = _top_logprob(tokenizer, score.token, score.logprob)
    top = [_top_logprob(tokenizer, token, logprob) for token, logprob in score.top]
    return ChatLogprob(chosen.token, chosen.logprob, chosen.bytes, top)


def _top_logprob(tokenizer: Tokenizer, token: int, logprob: float) -> TopLogprob:
    return TopLogprob(token_text(tokenizer, token), _number(logprob), list(tokenizer.spelling[token]))


def prompt_logprobs(tokenizer: Tokenizer, scores: Sequence[TokenScore]) -> PromptLogprobs:
    """One map per prompt token, by token id; none for the first."""
    return [None, *(_prompt_logprob(tokenizer, score) for score in scores)]


def _prompt_logprob(tokenizer: Tokenizer, score: TokenScore) -> dict[str, PromptLogprob]:
    ranked = [(token, logprob, rank) for rank, (token, logprob) in enumerate(score.top, 1)]
    if all(token != score.token for token, _ in score.top):
        ranked.append((score.token, score.logprob, score.rank))
    return {
        str(token): PromptLogprob(_number(logprob), rank, token_text(tokenizer, token))
        for token, logprob, rank in ranked
    }
