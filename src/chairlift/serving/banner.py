"""What a server prints at its start and at its end: what it serves with, where, how to try it, and what it has done."""

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from chairlift.config.options.resolve import DEFAULTS
from chairlift.config.settings import Settings
from chairlift.live.shared_memory.counts import Count
from chairlift.runner.native.library import instruction_set

if TYPE_CHECKING:
    from chairlift.runner.start.load import Loaded

# A route and a body, by what the model does.
_EXAMPLES: dict[str, tuple[str, str]] = {
    "complete": ("/v1/completions", '{"prompt": "The Alps are", "max_tokens": 32}'),
    "chat": ("/v1/chat/completions", '{"messages": [{"role": "user", "content": "What are the Alps?"}]}'),
    "embed": ("/v1/embeddings", '{"input": ["What are the Alps?", "A mountain range."]}'),
    "rerank": ("/v1/rerank", '{"query": "What are the Alps?", "documents": ["Mountains.", "A kind of pasta."]}'),
}


def summary(loaded: "Loaded") -> list[str]:
    """Device, kernels and limits; on a GPU also where its memory goes."""
    limits = loaded.limits
    blocks = "1 block" if limits.num_blocks == 1 else f"{limits.num_blocks} blocks"
    weights = "" if loaded.quantize == "none" else f"{loaded.quantize} weights, "
    kept = "" if loaded.kv_dtype == loaded.dtype else f" in {loaded.kv_dtype}"
    exact = "" if loaded.fingerprint is None else f"exact (fingerprint {loaded.fingerprint}), "
    kernels = f"{loaded.kernels} kernels" + (f" ({instruction_set()})" if loaded.kernels == "native" else "")
    ranks = "" if loaded.num_ranks == 1 else f" in {loaded.num_ranks} ranks"
    threads = ("1 thread" if loaded.threads == 1 else f"{loaded.threads} threads") + (
        "" if loaded.num_ranks == 1 else " each"
    )
    if loaded.makes:
        return [
            f"{loaded.device}, {loaded.dtype}, {exact}{kernels}, {threads}; {loaded.makes}, of inputs of up to "
            f"{limits.max_model_len - 1} tokens; {limits.max_step_tokens} tokens in a step"
        ]
    first = (
        f"{loaded.device}{ranks}, {loaded.dtype}, {weights}{exact}{kernels}, {threads}; "
        f"context {limits.max_model_len}, up to {limits.max_running} requests at once, "
        f"KV cache of {blocks} for {limits.max_pool_tokens} tokens{kept} "
        f"({limits.num_full_length:.1f} requests of {limits.max_model_len})"
    )
    return [first] if loaded.budget is None else [first, loaded.budget.in_words()]


def rules(settings: Settings) -> list[str]:
    """The scheduling rules that are not the default ones, in a line; none: all are."""
    given = {name: getattr(settings, name) for name in ("policy", "prefill", "admission")}
    chosen = [f"{name} {rule}" for name, rule in given.items() if rule != DEFAULTS[name]]
    return [f"scheduled by {', '.join(chosen)}"] if chosen else []


def example(settings: Settings, listener: socket.socket, what: str) -> str:
    """`what`: the model does, a key of `_EXAMPLES`."""
    host = settings.host
    url = url_of(settings, {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), listener)
    way = "" if settings.uds is None else f"--unix-socket {settings.uds} "
    url = url if settings.uds is None else "http://localhost"
    route, body = _EXAMPLES[what]
    key = "" if settings.api_key is None and settings.api_key_file is None else " -H 'Authorization: Bearer KEY'"
    command = f"curl {way}{url}{route}{key} -H 'Content-Type: application/json' -d '{body}'"
    if what not in ("chat", "complete") or way:  # a browser reaches no Unix socket
        return f"try it:\n  {command}"
    return f"see it at work in a browser, {url}/, or try it:\n  {command}"


def stopped(after_s: float, total: Callable[[Count], int] | None = None) -> str:
    """`total`: of a server's requests, by how they ended; a node has none of its own."""
    words = f"stopped after {_duration(after_s)}"
    if total is None:
        return words
    ends = {
        "failed": total(Count.FAILED),
        "aborted": total(Count.ABORTED),
        "refused": total(Count.OVERLOADED) + total(Count.REJECTED),
    }
    others = "".join(f", {count} {end}" for end, count in ends.items() if count)
    return f"{words}; requests: {total(Count.ANSWERED)} answered{others}"


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes:.0f} min" if minutes < 120 else f"{hours:.1f} h"


def url_of(settings: Settings, host: str, listener: socket.socket) -> str:
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    scheme = "http" if settings.tls_cert is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
