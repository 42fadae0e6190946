"""The requests of a workload, written out before the clock starts.

Always: the same workload, seed, API and names give the same bytes. Warm-up requests have the lengths of the first
requests and synthetic prompts of their own, so that they cache nothing of the measured ones. Adapters take turns.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from chairlift.core.errors import InvalidConfig
from chairlift.lab.bench.messages import PreparedRequest
from chairlift.lab.bench.target import Api, Prompt, TargetServer
from chairlift.lab.workload.item import Item
from chairlift.lab.workload.prompts import TextPrompts, TokenPrompts

MakePrompt = Callable[[Item, int], Prompt]  # of an item and its index
VOCAB_SIZE = 32_000  # nearly every model has at least as many tokens


def token_prompts(seed: int, vocab_size: int = VOCAB_SIZE) -> MakePrompt:
    return TokenPrompts(seed, vocab_size).tokens


def text_prompts(seed: int, count: Callable[[str], int] | None) -> MakePrompt:
    """Text whose tokens `count` counts; without it, a word counts as a token."""
    return TextPrompts(seed, count or (lambda text: len(text.split()))).text


class RequestWriter:
    def __init__(
        self, target: TargetServer, make: MakePrompt, make_warm_up: MakePrompt, adapters: Sequence[str] = ()
    ) -> None:
        self._base = target
        self._targets = [replace(target, model=adapter) for adapter in adapters] or [target]  # take turns
        self._make = make
        self._make_warm_up = make_warm_up

    def requests(self, items: Sequence[Item]) -> list[PreparedRequest]:
        return [self._planned(item, index, self._prompt(item, index)) for index, item in enumerate(items)]

    def warm_up(self, items: Sequence[Item], num: int) -> list[PreparedRequest]:
        first = [replace(items[i % len(items)], arrival_s=0.0, prompt=None, tokens=()) for i in range(num)]
        return [self._planned(item, index, self._make_warm_up(item, index)) for index, item in enumerate(first)]

    def trials(self, items: Sequence[Item]) -> dict[str, bytes]:
        """The first request of the warm-up, cut short, to the model and each adapter: show whether all are there."""
        first = replace(items[0], arrival_s=0.0, prompt=None, tokens=(), output_tokens=min(2, items[0].output_tokens))
        prompt = self._make_warm_up(first, 0)
        return {target.model: target.request(prompt, first) for target in (self._base, *self._targets)}

    def _planned(self, item: Item, index: int, prompt: Prompt) -> PreparedRequest:
        if item.n > 1 or item.beam_width:
            raise InvalidConfig(f"request {index + 1} of the workload has n or beam_width, which only `simulate` takes")
        request = self._targets[index % len(self._targets)].request(prompt, item)
        return PreparedRequest(index, item.arrival_s, item.prompt_tokens, item.output_tokens, request)

    def _prompt(self, item: Item, index: int) -> Prompt:
        """A written prompt is sent unchanged."""
        if item.prompt is None:
            return self._make(item, index)
        if not isinstance(item.prompt, str) and self._base.api is not Api.CHAT:
            raise InvalidConfig(f"request {index + 1} of the workload is a chat, which only --api chat can send")
        return item.prompt
