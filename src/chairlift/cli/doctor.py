"""`chairlift doctor`: this machine, what is installed, and what a run here would use."""

import argparse
import json
from collections.abc import Mapping
from typing import Any


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="show this machine, versions, and what would be used",
        description="Show this machine, what is installed, and what a run here would use.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from chairlift.cli.machine import machine_facts, model_facts, version_facts

    report = {
        "machine": machine_facts(),
        "versions": version_facts(),
        "model": model_facts(),
        "would use": _compute_facts(),
    }
    print(json.dumps(report, indent=2) if options.json else format_report(report))
    return 0


def format_report(report: Mapping[str, Mapping[str, str]]) -> str:
    width = max(len(name) for facts in report.values() for name in facts)
    lines: list[str] = []
    for title, facts in report.items():
        lines += [title, *(f"  {name:<{width}}  {fact}" for name, fact in facts.items())]
    return "\n".join(lines)


def _compute_facts() -> dict[str, str]:
    try:
        from chairlift.runner.hardware import describe

        return describe()
    except (ImportError, OSError) as error:
        # A torch that cannot be loaded is just what one runs this command to find out.
        return {"torch": f"cannot be loaded: {' '.join(str(error).split())}"}
