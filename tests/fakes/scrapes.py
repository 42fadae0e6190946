"""What a scrape says, as numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import prometheus_client.values
import pytest
from prometheus_client.parser import text_string_to_metric_families

from chairlift.telemetry.metrics.exposition import exposition


class Scrape:
    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    @classmethod
    def of(cls, folder: Path, vllm_model: str | None = None) -> "Scrape":
        return cls(exposition(folder, vllm_model).decode())

    def value(self, name: str, **labels: str) -> float:
        """Summed over the labels that are not named."""
        found = [value for (n, has), value in self.samples.items() if n == name and set(labels.items()) <= has]
        assert found, f"{name} {labels} is not there"
        return sum(found)

    def has(self, name: str) -> bool:
        return any(n == name for n, _ in self.samples)

    def counters(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Everything that must never go back."""
        kinds = {name: family.type for family in self.families.values() for name in _names(family.name, family.type)}
        return {key: value for key, value in self.samples.items() if kinds.get(key[0]) in ("counter", "histogram")}


def _names(name: str, kind: str) -> tuple[str, ...]:
    return tuple(name + end for end in ("_total", "_bucket", "_count", "_sum")) if kind != "gauge" else (name,)


@contextmanager
def own_values() -> Iterator[None]:
    """A process has one role; a test that takes one gives it back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prometheus_client.values, "ValueClass", prometheus_client.values.ValueClass)
        patch.setenv("PROMETHEUS_MULTIPROC_DIR", "set by the store")
        yield
