"""The run folder: where the processes of a server meet, made by the parent for its own user alone."""

from pathlib import Path


class RunFolder:
    def __init__(self, path: Path, pieces: Path | None = None) -> None:
        """`pieces`: a folder in shared memory, for keys and values that move between engines."""
        self.path = path
        self.pieces = pieces or path / "pieces"
        self.adapters = path / "adapters.json"  # that requests may name
        self.fingerprint = path / "fingerprint"  # of an exact engine, for the next to compare with
        self.counts = path / "counts"
        self.members = f"ipc://{path}/members"  # where the members' list publishes
        self.terms = path / "terms"  # what the fleet's first engine is like, for the next members' list
        self.metrics = path / "metrics"  # a folder
        self.numbers = path / "numbers"  # of engines on other machines, likewise
        self.rates = path / "rates"
        self.reloads = path / "settings.json"  # the outcome of the last reload

    def address(self, replica: int) -> str:
        """Of an engine's socket."""
        return f"ipc://{self.path}/engine-{replica}"

    def steps(self, replica: int) -> Path:
        """The note of an engine's steps in flight."""
        return self.path / f"steps-{replica}"
