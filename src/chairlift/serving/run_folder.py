"""Where the processes of a server meet: a folder of the parent's, which only its user may enter."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path

    @property
    def address(self) -> str:
        """Of the engine's socket."""
        return f"ipc://{self.path}/engine"

    @property
    def steps(self) -> Path:
        """The note of the steps under way."""
        return self.path / "steps"

    @property
    def fingerprint(self) -> Path:
        """The fingerprint of an exact engine, for the next to compare with."""
        return self.path / "fingerprint"

    @property
    def counts(self) -> Path:
        return self.path / "counts"

    @property
    def metrics(self) -> Path:
        """A folder."""
        return self.path / "metrics"

    @property
    def rates(self) -> Path:
        return self.path / "rates"

    @property
    def reloads(self) -> Path:
        """The outcome of the last look at the settings."""
        return self.path / "settings.json"
