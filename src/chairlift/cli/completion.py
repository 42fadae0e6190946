"""`chairlift completion`: a script with which a shell completes commands, options and files."""

import argparse

HELP = "print a script for a shell's completion"
SHELLS = ("bash", "zsh", "tcsh")
DESCRIPTION = "Print a script with which a shell completes commands, options and their values."
EPILOG = """\
bash:  chairlift completion bash > FILE, and source FILE in ~/.bashrc
zsh:   chairlift completion zsh > DIR/_chairlift, DIR being one of $fpath
tcsh:  chairlift completion tcsh > FILE, and source FILE in ~/.tcshrc
"""
_FILES, _FOLDERS = ("FILE", "PATH", "IN", "OUT", "TRACE"), ("DIR", "FOLDER")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="shell to write for")


def run(options: argparse.Namespace) -> int:
    import shtab

    program: argparse.ArgumentParser = options.program
    for command in _commands(program):
        for action in command._actions:
            if action.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar in _FOLDERS:
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
            elif isinstance(action.metavar, str) and action.metavar.startswith("{"):  # our options check values later
                action.choices = action.metavar.strip("{}").split(",")
    print(shtab.complete(program, options.shell))
    return 0


def _commands(program: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    actions = [action for action in program._actions if isinstance(action, argparse._SubParsersAction)]
    return [command for action in actions for command in action.choices.values()]
