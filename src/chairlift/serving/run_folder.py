"""The run folder: where the processes of a server meet, made by the parent for its own user alone."""

from pathlib import Path


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = f"ipc://{path}/engine"  # of the engine's socket
        self.steps = path / "steps"  # the note of the steps in flight
        self.fingerprint = path / "fingerprint"  # of an exact engine, for the next to compare with
        self.counts = path / "counts"
        self.metrics = path / "metrics"  # a folder
        self.rates = path / "rates"
        self.reloads = path / "settings.json"  # the outcome of the last reload
