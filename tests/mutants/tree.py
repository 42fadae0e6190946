"""A copy of the repository in which faults are planted: the files that git knows or does not ignore, and the kernels.

Always: the working tree is only read.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path

KERNELS = "src/chairlift/runner/native/*.so"


class Tree:
    def __init__(self, origin: Path, root: Path) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=origin, check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.root = root
        for path in [*map(Path, filter(None, listed.stdout.split("\0"))), *_kernels(origin)]:
            if (origin / path).is_file():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(origin / path, root / path)

    def environment(self) -> dict[str, str]:
        """For processes, and for those they start, to import the copy."""
        return os.environ | {"PYTHONPATH": f"{self.root / 'src'}:{self.root / 'tests'}"}

    @contextmanager
    def changed(self, path: str, text: str) -> Iterator[None]:
        original = (self.root / path).read_text()
        self.write(path, text)
        try:
            yield
        finally:
            self.write(path, original)

    def write(self, path: str, text: str) -> None:
        """Without compiled code: Python would take it for the new text's if size and second were the same."""
        (self.root / path).write_text(text)
        Path(cache_from_source(str(self.root / path))).unlink(missing_ok=True)


def _kernels(origin: Path) -> list[Path]:
    return [path.relative_to(origin) for path in origin.glob(KERNELS)]
