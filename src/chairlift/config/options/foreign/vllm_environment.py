"""Variables of the environment that configure vLLM."""

from collections.abc import Collection, Mapping

_PREFIX = "VLLM_"
_KEY = "VLLM_API_KEY"
_MAX_SHOWN = 8


def vllm_key(environment: Mapping[str, str], given: Collection[str]) -> dict[str, str]:
    """`given`: our options that have a value; keys among them win."""
    key = environment.get(_KEY, "")
    return {"api_key": key} if key and not _has_keys(given) else {}


def vllm_warnings(environment: Mapping[str, str], given: Collection[str]) -> list[str]:
    """Its key is read, for else a server that was closed would be open; the others are named."""
    names = sorted(name for name, value in environment.items() if name.startswith(_PREFIX) and value)
    unread = [name for name in names if name != _KEY or _has_keys(given)]
    if not unread:
        return []
    more = f" and {len(unread) - _MAX_SHOWN} more" if len(unread) > _MAX_SHOWN else ""
    return [f"{', '.join(unread[:_MAX_SHOWN])}{more}: not read here; docs/coming-from-vllm.md says what to use"]


def _has_keys(given: Collection[str]) -> bool:
    return "api_key" in given or "api_key_file" in given
