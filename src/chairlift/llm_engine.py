"""The Python interface for a script that makes the steps itself, by vLLM's names.

Always: a request is open from `add_request` until a step shows it `finished`, fails it, or `abort_request` ends it. An
error ends its own request alone. Used by one thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chairlift.build import ResolvedModel
from chairlift.core.errors import ChairliftError, InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.live.wire.shared_switchboard import Subscription
from chairlift.llm import Prompt
from chairlift.local.adapters import AskedAdapter, adapter_of
from chairlift.local.completing import Completing, RequestReading
from chairlift.local.model import LocalModel, TokenizerCheck
from chairlift.local.outputs import RequestOutput
from chairlift.text.prompt_forms import read_prompt


@dataclass(slots=True)
class _Open:
    subscription: Subscription
    completing: Completing
    has_news: bool = False

    @property
    def reading(self) -> RequestReading:
        (reading,) = self.completing.readings.values()
        return reading

    def take(self) -> None:
        while self.subscription.outputs and not self.completing.is_over:
            self.has_news = True
            self.completing.take(self.subscription.outputs.popleft())


class LLMEngine(LocalModel):
    def _start(self, model: ResolvedModel, *checks: TokenizerCheck) -> None:
        super()._start(model, *checks)
        self._open: dict[str, _Open] = {}  # by request id

    def add_request(
        self, request_id: str, prompt: Prompt, params: SamplingParams, *, lora_request: AskedAdapter = None
    ) -> str:
        """Its id, which outputs have; nothing is computed before the next step."""
        if not isinstance(request_id, str) or request_id in self._open:
            raise InvalidRequest("request_id", f"must be a text that no open request has, got {request_id!r}")
        asked = read_prompt(prompt)
        (params,) = self._params_for(params, 1)
        request = self._request(asked, params)
        adapter = adapter_of(self._adapters, lora_request)
        subscription = Subscription([])
        self._shared.ask(subscription, request, adapter)
        makers, end_sample = [self._stream_of], self._shared.end_sample
        completing = Completing([asked], [request], subscription.keys, makers, self.tokenizer, end_sample)
        added = self._open[request_id] = _Open(subscription, completing)
        added.reading.output.request_id = request_id
        return request_id

    def step(self) -> list[RequestOutput]:
        """Computes one step of all requests; those with new tokens, as their `output_kind` shows them."""
        self._shared.step()
        for name, each in list(self._open.items()):
            try:
                each.take()
            except ChairliftError:  # the others' tokens are shown by the next step
                self._end(name)
                raise
        shown = []
        for name, each in list(self._open.items()):
            if each.has_news and (output := each.reading.shown()) is not None:
                shown.append(output)
            each.has_news = False
            if each.completing.is_over:
                self._end(name)
        return shown

    def abort_request(self, request_id: str | Sequence[str]) -> None:
        """One, or several; those that have ended are none."""
        for name in [request_id] if isinstance(request_id, str) else request_id:
            if name in self._open:
                self._end(name)

    def has_unfinished_requests(self) -> bool:
        return bool(self._open)

    def get_num_unfinished_requests(self) -> int:
        return len(self._open)

    def _end(self, name: str) -> None:
        self._shared.drop(self._open.pop(name).subscription)
