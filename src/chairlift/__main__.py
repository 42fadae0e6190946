"""Where every command begins, `chairlift` and `python -m chairlift` alike: nothing is imported before Ctrl-C is heard.

Always: Ctrl-C ends the program with 130 and without a traceback. While a command runs it is a `KeyboardInterrupt`, or
what the command makes of it; before and after that there is nothing to tidy up, and the program ends where it is.
SIGTERM ends a server that has not begun as it ends one that starts: with 0, also as the first process of a container,
which hears only the signals that it asks for.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

_Handler = Callable[[int, FrameType | None], object] | signal.Handlers


def main() -> int:
    is_server = sys.argv[1:2] == ["serve"]  # which hears signals by itself once it begins
    _change(signal.SIGINT, signal.default_int_handler, _end_at_once)
    if is_server:
        _change(signal.SIGTERM, signal.SIG_DFL, lambda *_: os._exit(0))
    from chairlift.cli.main import main as run

    try:
        try:
            if not is_server:
                _change(signal.SIGINT, _end_at_once, signal.default_int_handler)
            return run()
        finally:
            _change(signal.SIGINT, signal.default_int_handler, _end_at_once)
    except KeyboardInterrupt:  # between the command's end and this one
        return 130


def _change(number: signal.Signals, before: _Handler, after: _Handler) -> None:
    """Unless somebody had it otherwise: a shell has its background ignore Ctrl-C."""
    if signal.getsignal(number) is before:
        signal.signal(number, after)


def _end_at_once(*_: object) -> None:
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
