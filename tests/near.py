"""The tests near a change: `make near`.

    python tests/near.py [--base REV] [--list] [pytest's arguments]

Runs tests/property, tests/golden and tests/unit/core, the folders of tests/unit that mirror the source files changed
since the branch began, and the changed test files themselves. The branch began where it left origin/main, or main; on
main itself, at the last push, or without an upstream at the commit before the last. BASE=REV names another commit.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SOURCE = "src/chairlift"
ALWAYS = ("tests/property", "tests/golden", "tests/unit/core")
MARKS = "not slow and not nightly and not gpu"


def mirror(source: str, root: Path = ROOT) -> str | None:
    """The folder of tests/unit nearest to a source file's; the test file of a module that lies in no folder."""
    path = PurePosixPath(source).relative_to(SOURCE)
    if path.parent == PurePosixPath():
        own = f"tests/unit/test_{path.stem}.py"
        return own if (root / own).exists() else None
    folders = (f"tests/unit/{folder}" for folder in path.parents[:-1])
    return next((folder for folder in folders if (root / folder).is_dir()), None)


def paths_near(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """What pytest is given: no path lies in another."""
    found = set(ALWAYS)
    for name in changed:
        path = PurePosixPath(name)
        if path.is_relative_to(SOURCE):
            found.add(mirror(name, root) or ALWAYS[0])
        elif path.is_relative_to("tests") and path.match("test_*.py") and (root / path).exists():
            found.add(name)
    return sorted(path for path in found if not any(str(over) in found for over in PurePosixPath(path).parents))


def changed_since(base: str, root: Path = ROOT) -> list[str]:
    """Files that differ from a commit or that git does not know yet."""
    differing = _git(root, "diff", "--name-only", "--no-renames", base)
    if differing is None:
        raise SystemExit(f"near: git knows no commit {base}; name another with BASE=REV")
    unknown = _git(root, "ls-files", "--others", "--exclude-standard") or ""
    return sorted({*differing.splitlines(), *unknown.splitlines()})


def beginning(root: Path = ROOT) -> str:
    """The commit at which the branch began."""
    on_main = _git(root, "rev-parse", "--abbrev-ref", "HEAD") == "main"
    for trunk in ("@{upstream}",) if on_main else ("origin/main", "main"):
        if base := _git(root, "merge-base", "HEAD", trunk):
            return base
    return "HEAD~1"


def _git(root: Path, *arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    return None if done.returncode else done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests near a change.")
    parser.add_argument("--base", default=os.environ.get("BASE"), help="commit to compare with")
    parser.add_argument("--list", action="store_true", help="print the paths and run nothing")
    args, of_pytest = parser.parse_known_args()
    paths = paths_near(changed_since(args.base or beginning()))
    print(*paths, flush=True)
    if args.list:
        return 0
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-m", MARKS, *of_pytest, *paths]
    return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
