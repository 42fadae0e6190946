"""Plants faults in the code, one at a time, and says which tests notice.

    python tests/mutants/run.py [--seed 0] [--count 60] [--rooms core,text] [--near-only] [--jobs 2] [--out FILE]

Each mutant meets the mirror folder of its file, one of the core also the rest of `make near`. The survivors meet those
tests of `make test` that run their sites. --resume goes on from what FILE has, also after a run with --near-only.
Everything happens in copies of the tree, below the folder for temporary files.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutants.planting import pick
from mutants.report import Report, summary
from mutants.rooms import SHARES
from mutants.trying import Jobs, try_near, try_reach

ROOT = Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description="Plant faults and see which tests notice.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60, help="mutants of all rooms together")
    parser.add_argument("--rooms", default=",".join(SHARES), help="only these, each with its share of the count")
    parser.add_argument("--near-only", action="store_true", help="do not look for the tests that reach survivors")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--resume", action="store_true", help="leave out what --out has")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    args = parser.parse_args()
    rooms = args.rooms.split(",")
    if unknown := [room for room in rooms if room not in SHARES]:
        parser.error(f"--rooms: no room is called {unknown[0]}; there are {', '.join(SHARES)}")
    mutants = pick(ROOT, args.seed, args.count, rooms)
    report = Report(mutants, args.out, args.resume)
    if args.list:
        print(*map(report.row, mutants), sep="\n")
        return 0
    with TemporaryDirectory(prefix="mutants-") as folder:
        jobs = Jobs(ROOT, Path(folder), args.jobs)
        try_near(jobs, report.missing(), report.add)
        if not args.near_only:
            try_reach(jobs, report.survivors(), report.add)
    print(*summary(report.fates()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
