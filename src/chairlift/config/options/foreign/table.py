"""All names of other engines, by flag and by the key of a file."""

from collections.abc import Collection, Mapping

from chairlift.config.options.foreign.llama_cpp import LLAMA_CPP
from chairlift.config.options.foreign.names import Foreign
from chairlift.config.options.foreign.vllm import VLLM

FOREIGN: tuple[Foreign, ...] = (*VLLM, *LLAMA_CPP)
BY_NAME: Mapping[str, Foreign] = {foreign.name: foreign for foreign in reversed(FOREIGN)}


def by_flag(flag: str) -> Foreign | None:
    """The first that has this flag; a switch also by its --no- form."""
    plain = "--" + flag.removeprefix("--no-") if flag.startswith("--no-") else flag
    return next((foreign for foreign in FOREIGN if flag in foreign.flags or plain in foreign.flags), None)


_PREFIX = "VLLM_"
_KEY = "VLLM_API_KEY"
_MAX_SHOWN = 8


def vllm_key(environment: Mapping[str, str], given: Collection[str]) -> dict[str, str]:
    """`given`: our options that have a value; keys among them win."""
    key = environment.get(_KEY, "")
    return {"api_key": key} if key and not _has_keys(given) else {}


def vllm_warnings(environment: Mapping[str, str], given: Collection[str]) -> list[str]:
    """Variables that configure vLLM: its key is read, for else a server that was closed would be open; others are
    named.
    """
    names = sorted(name for name, value in environment.items() if name.startswith(_PREFIX) and value)
    unread = [name for name in names if name != _KEY or _has_keys(given)]
    if not unread:
        return []
    more = f" and {len(unread) - _MAX_SHOWN} more" if len(unread) > _MAX_SHOWN else ""
    return [f"{', '.join(unread[:_MAX_SHOWN])}{more}: not read here; docs/coming-from-vllm.md says what to use"]


def _has_keys(given: Collection[str]) -> bool:
    return "api_key" in given or "api_key_file" in given
