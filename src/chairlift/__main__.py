"""The entry point of `chairlift` and `python -m chairlift`: handles Ctrl-C before anything else is imported.

Always: Ctrl-C ends the program with 130 and without a traceback. While a command runs it is a `KeyboardInterrupt`, or
what the command makes of it; before and after that the program ends at once. SIGTERM ends a server that has not begun
with 0, as it ends a started one, also as the first process of a container, which gets only the signals it handles. A
package that is not installed is one line and 2.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

_Handler = Callable[[int, FrameType | None], object] | signal.Handlers


def main() -> int:
    is_server = sys.argv[1:2] == ["serve"]  # handles signals itself once it begins
    _change(signal.SIGINT, signal.default_int_handler, _end_at_once)
    if is_server:
        _change(signal.SIGTERM, signal.SIG_DFL, lambda *_: os._exit(0))
    try:
        try:
            from chairlift.cli.main import main as run

            if not is_server:
                _change(signal.SIGINT, _end_at_once, signal.default_int_handler)
            return run()
        finally:
            _change(signal.SIGINT, signal.default_int_handler, _end_at_once)
    except KeyboardInterrupt:  # between the command's end and this one
        return 130
    except ModuleNotFoundError as error:
        from chairlift.config.extras import not_installed

        line = not_installed(error)
        if line is None:
            raise
        print(f"chairlift: error: {line}", file=sys.stderr)
        return 2


def _change(number: signal.Signals, before: _Handler, after: _Handler) -> None:
    """Unless the handler was changed before: a shell makes background jobs ignore Ctrl-C."""
    if signal.getsignal(number) is before:
        signal.signal(number, after)


def _end_at_once(*_: object) -> None:
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
