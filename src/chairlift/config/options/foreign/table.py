"""All names of other engines, by flag and by the key of a file."""

from collections.abc import Mapping

from chairlift.config.options.foreign.llama_cpp import LLAMA_CPP
from chairlift.config.options.foreign.names import Foreign
from chairlift.config.options.foreign.sglang import SGLANG, SGLANG_FAMILIES
from chairlift.config.options.foreign.vllm import VLLM, VLLM_FAMILIES

FOREIGN: tuple[Foreign, ...] = (*VLLM, *LLAMA_CPP, *SGLANG)
BY_NAME: Mapping[str, Foreign] = {foreign.name: foreign for foreign in reversed(FOREIGN)}


def by_flag(flag: str) -> Foreign | None:
    """The first that has this flag; a switch also by its --no- form."""
    plain = "--" + flag.removeprefix("--no-") if flag.startswith("--no-") else flag
    return next((foreign for foreign in FOREIGN if flag in foreign.flags or plain in foreign.flags), None)


def of_family(flag: str) -> str | None:
    """What to do instead of a flag that is known by its beginning alone."""
    families = VLLM_FAMILIES | SGLANG_FAMILIES
    return next((advice for start, advice in families.items() if flag.startswith(start)), None)
