"""Which settings may change while a server runs.

Always: a setting that is not listed here needs a restart to change. Files that a setting names (say, of keys) are read
again where they are used, even if the setting itself is unchanged.
"""

from dataclasses import dataclass, fields, replace

from chairlift.config.settings import Settings

CHANGEABLE = (
    "max_body_bytes",
    "max_connections",
    "max_connections_per_address",
    "max_receive_seconds",
    "slow_reader_seconds",
    "max_waiting",
    "max_waiting_tokens",
    "max_request_seconds",
    "drain_timeout",
    "vllm_metric_names",
    "log_level",
)


@dataclass(frozen=True, slots=True)
class Reloaded:
    settings: Settings  # to go on with
    changed: tuple[str, ...]  # settings that are new
    needs_restart: tuple[str, ...]  # settings that would be other ones after a restart


def reload(running: Settings, found: Settings) -> Reloaded:
    names = [field.name for field in fields(Settings) if field.compare and field.name != "warnings"]
    different = [name for name in names if getattr(running, name) != getattr(found, name)]
    changed = tuple(name for name in different if name in CHANGEABLE)
    values = {name: getattr(found, name) for name in changed}
    return Reloaded(replace(running, **values), changed, tuple(name for name in different if name not in CHANGEABLE))
