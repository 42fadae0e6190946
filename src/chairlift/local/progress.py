"""A progress bar of answers, in terminals and notebooks."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

UseTqdm = bool | Callable[..., Any] | None  # a function: makes the bar, with tqdm's arguments


def progress_bar(use_tqdm: UseTqdm, total: int) -> "tqdm[Any]":
    """None: where one can be seen."""
    from tqdm.auto import tqdm

    has_bar = _is_seen() if use_tqdm is None else bool(use_tqdm)
    make = use_tqdm if callable(use_tqdm) else tqdm
    bar: tqdm[Any] = make(total=total, unit="answer", disable=not has_bar)
    return bar


def _is_seen() -> bool:
    """A notebook's standard error is no terminal, yet it shows bars."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
