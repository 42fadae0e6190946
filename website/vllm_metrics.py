"""vLLM's metrics beside ours, from the table that translates them."""

from chairlift.telemetry.metrics.series import SERIES
from chairlift.telemetry.metrics.vllm import sources
from tables import code


def metrics_table() -> str:
    return (
        "\n".join(f"- {code(name)}: {' + '.join(code(_ours(part)) for part in parts)}" for name, _, parts in sources())
        + "\n"
    )


def _ours(part: str) -> str:
    name = f"chairlift_{part}"
    return name if name in SERIES else f"{name}_total"
