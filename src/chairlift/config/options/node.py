"""The options of `chairlift node`, and the command line that starts one with the settings of a server."""

import json
from collections.abc import Mapping
from pathlib import Path

from chairlift.config.options.resolve import DEFAULTS, OPTIONS, Option
from chairlift.config.settings import Settings

_SERVERS = ("engine_timeout", "drain_timeout", "move_kv", "log_level", "log_format", "quiet")  # of the server's options
_WITHOUT = ("cluster", "autoscale", "router", "roles")
# Not copied: who joins where, and `preset`, whose options the settings have.
_OWN = ("replicas", "join", "address", "cluster_key", "preset")


def _is_nodes(option: Option) -> bool:
    if option.group == "server":
        return option.name in _SERVERS
    return option.group != "record" and option.name not in _WITHOUT


NODE_OPTIONS = tuple(option for option in OPTIONS if _is_nodes(option))


def node_flags(settings: Settings) -> list[str]:
    """What differs from the defaults; paths in full, as a node runs in another folder."""
    found: list[str] = []
    for option in NODE_OPTIONS:
        value = getattr(settings, option.name)
        if option.name in _OWN or value == DEFAULTS[option.name]:
            continue
        if not option.hint:
            found.append(option.flag if value else "--no-" + option.flag.removeprefix("--"))
            continue
        if isinstance(value, tuple):  # names and folders
            found += [word for name, path in value for word in (option.flag, f"{name}={path.absolute()}")]
            continue
        if isinstance(value, Mapping):
            found += [option.flag, json.dumps(value)]
            continue
        is_name = option.name in ("model", "tokenizer", "generation_config") and not Path(value).expanduser().exists()
        is_file = not is_name and (isinstance(value, Path) or option.name in ("model", "generation_config"))
        found += [option.flag, str(Path(value).expanduser().absolute() if is_file else value)]
    return found
