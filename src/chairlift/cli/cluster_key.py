"""`chairlift cluster-key`: makes the key that machines of a cluster share."""

import argparse
from pathlib import Path

from chairlift.config.cluster_key import make_key

HELP = "make the key that the machines of a cluster share"
DESCRIPTION = "Write a new cluster key to FILE, which only its owner can read. Copy it to every machine of the cluster."


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="new file for the key")


def run(options: argparse.Namespace) -> int:
    make_key(options.file)
    print(f"wrote {options.file}; copy it to every machine of the cluster, as --cluster-key")
    return 0
