"""One OpenAI request under way: its prompts in the engine, and what the answer must say about them."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from chairlift.core.params import SamplingParams
from chairlift.core.score import TokenScore, likeliest
from chairlift.server.answer import Answer, Delta, merge
from chairlift.server.context import ServerContext
from chairlift.server.errors import UnknownModel
from chairlift.server.openai.requests import SamplingRequest
from chairlift.server.openai.responses import CachedTokens, Usage


@dataclass(slots=True)
class Choice:
    """One sample of one prompt, as far as it has come."""

    text: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    scores: list[TokenScore | None] = field(default_factory=list)
    finish: str | None = None
    stop: str | int | None = None

    def add(self, delta: Delta) -> None:
        self.text.append(delta.text)
        if delta.token is not None:
            self.tokens.append(delta.token)
            self.scores.append(delta.score)
        if delta.finish is not None:
            self.finish, self.stop = delta.finish, delta.stop


class Job:
    def __init__(
        self,
        context: ServerContext,
        request: SamplingRequest,
        prefix: str,
        prompts: Sequence[tuple[list[int], SamplingParams]],
        *,
        user: str = "",
        hides_output: bool = False,  # the engine's token is not part of the answer
    ) -> None:
        self.id = f"{prefix}-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.model = request.model or context.model_names[0]
        self.request = request
        self.params = prompts[0][1]
        self.hides_output = hides_output
        # Tokens that never have text of their own; the text of any other is at most held back for a while.
        self.silent_ids = context.tokenizer.special_ids if self.params.skip_special_tokens else frozenset()
        self.answers: list[Answer] = []
        try:
            for prompt, params in prompts:
                self.answers.append(
                    Answer(
                        context,
                        prompt,
                        params,
                        cache_salt=request.cache_salt or "",
                        priority=request.priority or 0,
                        user=user,
                        deadline_s=request.deadline_s,
                    )
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for answer in self.answers:
            answer.close()

    async def collect(self) -> list[Choice]:
        """The n choices for the first prompt, complete, then those for the second, and so on."""
        made = [[Choice() for _ in range(self.params.num_samples)] for _ in self.answers]
        async for index, delta in merge(self.answers):
            made[index][delta.sample].add(delta)
        if self.params.best_of:
            best = [likeliest([choice.scores for choice in samples], self.params.n) for samples in made]
            made = [[samples[i] for i in chosen] for samples, chosen in zip(made, best, strict=True)]
        if self.hides_output:
            made = [[Choice(finish="length") for _ in samples] for samples in made]
        return [choice for samples in made for choice in samples]

    def usage(self) -> Usage:
        num_prompt = sum(len(answer.prompt) for answer in self.answers)
        num_output = 0 if self.hides_output else sum(answer.num_output for answer in self.answers)
        num_cached = sum(answer.num_cached for answer in self.answers)
        return Usage(num_prompt, num_prompt + num_output, num_output, CachedTokens(num_cached))


def check_model(context: ServerContext, model: str | None) -> None:
    if model is not None and model not in context.model_names:
        names = ", ".join(context.model_names)
        raise UnknownModel(f"model: {model[:200]!r} is not served here; served: {names}")
