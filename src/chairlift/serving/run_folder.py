"""Where the processes of a server meet: a folder of the parent's, which only its user may enter."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Place:
    folder: Path

    @property
    def address(self) -> str:
        """Of the engine's socket."""
        return f"ipc://{self.folder}/engine"

    @property
    def steps(self) -> Path:
        """The note of the steps under way."""
        return self.folder / "steps"

    @property
    def bits(self) -> Path:
        """The fingerprint of an exact engine, for the next to compare with."""
        return self.folder / "bits"

    @property
    def counts(self) -> Path:
        return self.folder / "counts"

    @property
    def metrics(self) -> Path:
        """A folder."""
        return self.folder / "metrics"

    @property
    def rates(self) -> Path:
        return self.folder / "rates"

    @property
    def reloads(self) -> Path:
        """The outcome of the last look at the settings."""
        return self.folder / "settings.json"
