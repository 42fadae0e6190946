"""The files of a MindSpore checkpoint: one, or one for each rank with the strategies that say who has which slice.

model.ckpt                                                       FOLDER/model.ckpt
FOLDER/rank_0/NAME.ckpt  FOLDER/rank_1/NAME.ckpt  ...            FOLDER/strategy/NAME.ckpt, if there are any
"""

import re
from pathlib import Path

from chairlift.core.errors import InvalidConfig

_RANK = re.compile(r"rank_(\d{1,6})")


def has_ckpt(folder: Path) -> bool:
    return bool(_plain(folder) or _ranks(folder))


def ckpt_files(path: Path) -> list[Path]:
    """By rank; a file or a folder with one is a single rank's."""
    if path.is_file():
        return [path]
    ranks = _ranks(path)
    if not ranks:
        return [_only(path, _plain(path), f"name one, as in --model {path}/NAME.ckpt")]
    missing = next((rank for rank in range(len(ranks)) if rank not in ranks), None)
    if missing is not None:
        raise InvalidConfig(f"{path}: rank_{missing} is missing: {len(ranks)} ranks are here, up to {max(ranks)}")
    return [
        _only(ranks[rank], sorted(ranks[rank].glob("*.ckpt")), "leave one of them there") for rank in range(len(ranks))
    ]


def strategy_files(path: Path) -> list[Path]:
    if path.is_file():
        return []
    return sorted((path / "strategy").glob("*.ckpt")) + sorted(path.glob("*strategy*.ckpt"))


def _plain(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.ckpt")) if "strategy" not in path.name]


def _ranks(folder: Path) -> dict[int, Path]:
    return {
        int(named[1]): path
        for path in sorted(folder.glob("rank_*"))
        if (named := _RANK.fullmatch(path.name)) and any(path.glob("*.ckpt"))
    }


def _only(folder: Path, found: list[Path], way_out: str) -> Path:
    if len(found) > 1:
        raise InvalidConfig(
            f"{folder}: {found[0].name} and {len(found) - 1} more .ckpt files may be of different steps; {way_out}"
        )
    if not found:
        raise InvalidConfig(f"{folder}: no .ckpt file in this folder")
    return found[0]
