"""The requests of a workload, written out before the clock starts.

Always: the same workload, seed and API give the same bytes. Requests of the warm-up have the lengths of the workload's
first and made-up prompts of their own, so that nothing of the measured ones is cached by them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from chairlift.bench.messages import PreparedRequest
from chairlift.bench.target import Api, Prompt, TargetServer
from chairlift.core.errors import InvalidConfig
from chairlift.workload.item import Item
from chairlift.workload.prompts import TextPrompts, TokenPrompts

MakePrompt = Callable[[Item, int], Prompt]  # of an item and its place
CountTokens = Callable[[str], int]
VOCAB_SIZE = 32_000  # every model's is about as large, or larger


def token_prompts(seed: int, vocab_size: int = VOCAB_SIZE) -> MakePrompt:
    return TokenPrompts(seed, vocab_size).tokens


def text_prompts(seed: int, count: CountTokens | None) -> MakePrompt:
    """Text whose tokens `count` finds; without it, a word is taken for a token."""
    return TextPrompts(seed, count or (lambda text: len(text.split()))).text


class RequestWriter:
    def __init__(self, target: TargetServer, make: MakePrompt, make_warm_up: MakePrompt) -> None:
        self._target = target
        self._make = make
        self._make_warm_up = make_warm_up

    def requests(self, items: Sequence[Item]) -> list[PreparedRequest]:
        return [self._planned(item, index, self._prompt(item, index)) for index, item in enumerate(items)]

    def warm_up(self, items: Sequence[Item], num: int) -> list[PreparedRequest]:
        first = [replace(items[i % len(items)], arrival_s=0.0, prompt=None, tokens=()) for i in range(num)]
        return [self._planned(item, index, self._make_warm_up(item, index)) for index, item in enumerate(first)]

    def trial(self, items: Sequence[Item]) -> PreparedRequest:
        """A request that shows whether the server answers at all: the first of the warm-up, cut short."""
        first = replace(items[0], output_tokens=min(2, items[0].output_tokens))
        return self.warm_up([first], 1)[0]

    def _planned(self, item: Item, index: int, prompt: Prompt) -> PreparedRequest:
        request = self._target.request(prompt, item)
        return PreparedRequest(index, item.arrival_s, item.prompt_tokens, item.output_tokens, request)

    def _prompt(self, item: Item, index: int) -> Prompt:
        """A prompt that was written is sent as it is."""
        if item.prompt is None:
            return self._make(item, index)
        if not isinstance(item.prompt, str) and self._target.api is not Api.CHAT:
            raise InvalidConfig(f"request {index + 1} of the workload is a chat, which only --api chat can send")
        return item.prompt
