"""The files of a report, in a folder that is made if it is not there."""

from collections.abc import Mapping
from pathlib import Path


def write(folder: Path, contents: Mapping[str, str]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    return [folder / name for name in contents]
