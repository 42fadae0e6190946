"""The contest's accuracy set for `chairlift verify`: each prompt asks for as many tokens as its answer has, or fewer if
the model ends it. Batches may be of any size: rows are paired by their prefix, not by when they were computed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from chairlift.build import ResolvedModel
from chairlift.core.params import SamplingParams
from chairlift.lab.contest.requests import Prompt
from chairlift.lab.verify.cases import Case
from chairlift.lab.verify.opened import PromptSpec
from chairlift.lab.verify.subject import LocalSubject, ServedSubject
from chairlift.text.find import load_tokenizer

NUM_PROMPTS = 500


class ContestSubject(LocalSubject):
    """A model in this process, asked the accuracy set alone."""

    def __init__(self, model: ResolvedModel, prompts: Sequence[Prompt]) -> None:
        super().__init__(model)
        self._prompts = prompts

    def cases(self, spec: PromptSpec) -> list[Case]:
        model = self.opened.model
        encode = load_tokenizer(model.source, model.settings.tokenizer).encode
        ends = tuple(token for token in model.config.eos_ids if token < model.config.vocab_size)
        return _cases(self._prompts, encode, ends)


class ServedContestSubject(ServedSubject):
    """A server, asked the same; it knows which tokens end a text."""

    def __init__(self, url: str, logits: Path | None, prompts: Sequence[Prompt]) -> None:
        super().__init__(url, logits)
        self._prompts = prompts

    def cases(self, spec: PromptSpec) -> list[Case]:
        return _cases(self._prompts, self.encode, ())


def _cases(prompts: Sequence[Prompt], encode: Callable[[str], list[int]], ends: tuple[int, ...]) -> list[Case]:
    return [
        Case(tuple(encode(text)), SamplingParams(temperature=0.0, max_tokens=count, stop_token_ids=ends, seed=0))
        for text, count in prompts
    ]
