"""A front end's metrics."""

import asyncio
from pathlib import Path

from chairlift.telemetry.metrics.parent import front_end_role
from chairlift.telemetry.metrics.store import FLUSH_S, Store

_MAX_ADAPTERS = 100  # labels
_OTHER = "other"  # adapters


class FrontEndMetrics:
    """Shown a tenth of a second later at most. For the event loop alone."""

    def __init__(self, folder: Path, index: int) -> None:
        self.folder = folder
        self._store = Store(folder, front_end_role(index))
        self._first_token = self._store.histogram("chairlift_time_to_first_token_seconds")
        self._per_token = self._store.histogram("chairlift_time_per_output_token_seconds")
        self._duration = self._store.histogram("chairlift_request_duration_seconds")
        self._prompt = self._store.histogram("chairlift_request_prompt_tokens")
        self._generated = self._store.histogram("chairlift_request_generated_tokens")
        self._samples = self._store.histogram("chairlift_request_samples")
        self._max_tokens = self._store.histogram("chairlift_request_max_tokens")
        # From the start, so that their rise shows.
        self._store.counter("chairlift_connections_refused_total", "503")
        self._store.counter("chairlift_requests_moved_total", "death", "computed")
        self._adapters: set[str] = set()  # that have a label
        self._will_flush = False

    def responded(self, route: str, code: int) -> None:
        self._store.counter("chairlift_http_responses_total", route, str(code)).add()
        self._flush_soon()

    def refused(self, reason: str) -> None:
        """A connection ended below the routes."""
        self._store.counter("chairlift_connections_refused_total", reason).add()
        self._flush_soon()

    def ended(self, route: str, outcome: str, reason: str) -> None:
        self._store.counter("chairlift_requests_total", route, outcome, reason).add()
        self._flush_soon()

    def finished(
        self, num_prompt: int, num_generated: int, ttft_s: float, tpot_s: float | None, total_s: float
    ) -> None:
        """A prompt was answered; `tpot_s` is None when there was one token."""
        self._first_token.add(ttft_s)
        if tpot_s is not None:
            self._per_token.add(tpot_s)
        self._duration.add(total_s)
        self._prompt.add(num_prompt)
        self._generated.add(num_generated)

    def asked(self, num_samples: int, max_tokens: int) -> None:
        """Of a prompt that was answered."""
        self._samples.add(num_samples)
        self._max_tokens.add(max_tokens)

    def adapted(self, adapter: str, num_prompt: int, num_generated: int) -> None:
        """A prompt was answered with an adapter."""
        adapter = self._label(adapter)
        self._store.counter("chairlift_adapter_requests_total", adapter).add()
        self._store.counter("chairlift_adapter_tokens_total", adapter, "prompt").add(num_prompt)
        self._store.counter("chairlift_adapter_tokens_total", adapter, "generated").add(num_generated)

    def adapter_refused(self, adapter: str) -> None:
        """A request was refused for now."""
        self._store.counter("chairlift_adapter_requests_refused_total", self._label(adapter)).add()

    def _label(self, adapter: str) -> str:
        """The first that come have their own."""
        if adapter not in self._adapters and len(self._adapters) >= _MAX_ADAPTERS:
            return _OTHER
        self._adapters.add(adapter)
        return adapter

    def moved(self, why: str, with_kv: bool) -> None:
        """A request goes on in another replica."""
        self._store.counter("chairlift_requests_moved_total", why, "moved" if with_kv else "computed").add()
        self._flush_soon()

    def spans(self, outcome: str, count: int) -> None:
        self._store.counter("chairlift_trace_spans_total", outcome).add(count)

    def flush(self) -> None:
        self._will_flush = False
        self._store.flush()

    def _flush_soon(self) -> None:
        if not self._will_flush:
            self._will_flush = True
            asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
