"""The adapters that a call asks for: by name, or by name and path."""

from collections.abc import Sequence

from chairlift.core.errors import InvalidRequest
from chairlift.live.adapters.registry import Adapter, AdapterRegistry
from chairlift.lora.request import LoRARequest

AskedAdapter = LoRARequest | str | None  # a name: of `lora`, of a folder in `lora_dir`, or of a LoRARequest before
_FIELD = "lora_request"
_TAKES_NONE = "no adapters are taken; give lora or lora_dir, or in Python enable_lora=True"


def adapter_of(registry: AdapterRegistry | None, asked: AskedAdapter) -> Adapter | None:
    """Raises `InvalidRequest` where there is none of this name, and `InvalidConfig` where it is broken. `registry`:
    None where adapters are not taken."""
    if asked is None:
        return None
    if not isinstance(asked, str | LoRARequest):
        raise InvalidRequest(
            _FIELD, f'must be LoRARequest("name", 1, "path") or the name of an adapter, got {type(asked).__name__}'
        )
    if registry is None:
        raise InvalidRequest(_FIELD, _TAKES_NONE)
    if isinstance(asked, LoRARequest):
        return registry.offer(asked.lora_name, asked.lora_path, asked.load_inplace)
    found = registry.find(asked)
    if found is None:
        known = ", ".join(registry.names()) or "none yet"
        raise InvalidRequest(_FIELD, f"{asked!r} is not known; there are {known}")
    return found


def adapters_of(
    registry: AdapterRegistry | None, asked: AskedAdapter | Sequence[AskedAdapter], count: int
) -> list[Adapter | None]:
    """One for each of `count` prompts, which may share one."""
    if isinstance(asked, str) or not isinstance(asked, Sequence):
        return [adapter_of(registry, asked)] * count
    if len(asked) != count:
        raise InvalidRequest(_FIELD, f"{len(asked)} adapters for {count} prompts; give one, or as many")
    found: list[Adapter | None] = []
    for index, each in enumerate(asked):
        first = asked.index(each)  # one that is read anew is so once
        found.append(found[first] if first < index else adapter_of(registry, each))
    return found
