"""What the choices of a prompt show of it, made once for all of them: when the first needs it."""

from collections.abc import Iterator
from functools import cached_property

from chairlift.server.answer import Answer
from chairlift.server.openai.logprobs import CompletionScores, PromptLists, prompt_lists, prompt_logprobs
from chairlift.text.detokenize import last_bytes
from chairlift.text.tokenizer import Tokenizer


class ShownPrompt:
    def __init__(self, tokenizer: Tokenizer, answer: Answer) -> None:
        self.answer = answer
        self._tokenizer = tokenizer
        self._skips_special = answer.params.skip_special_tokens
        self._scores: list[bytes] | None = None

    @cached_property
    def text(self) -> str:
        return self._tokenizer.decode(self.answer.prompt, self._skips_special)

    def scores(self) -> Iterator[bytes]:
        """The JSON of `PromptLogprobs`, to be read to its end."""
        if self._scores is not None:
            yield from self._scores
            return
        made = []
        for piece in prompt_logprobs(self._tokenizer, self.answer.prompt_scores):
            made.append(piece)
            yield piece
        self._scores = made

    def choice_scores(self, echo: bool) -> CompletionScores:
        """The scores of one more choice; `echo`: behind those of the prompt."""
        lists = (lambda: self._lists) if echo else None
        return CompletionScores(self._tokenizer, self._last_bytes, self._skips_special, lists)

    @cached_property
    def _last_bytes(self) -> bytes:
        return last_bytes(self._tokenizer, self.answer.prompt, self._skips_special)

    @cached_property
    def _lists(self) -> PromptLists:
        return prompt_lists(self._tokenizer, self.answer.prompt, self.answer.prompt_scores, self._skips_special)
