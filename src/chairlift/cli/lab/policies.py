"""`chairlift policies`: every scheduling and routing rule in one line, with its parameters."""

import argparse
import json
from typing import Any

from chairlift.config.options.rules import AFTER_PREEMPT, RULE_KINDS, parameters, summary

HELP = "list the scheduling and routing rules"
DESCRIPTION = "List the rules for --policy, --prefill, --admission and --router, with their parameters and defaults."


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(options: argparse.Namespace) -> int:
    rules = {option: [_describe(option, name) for name in kind.known] for option, kind in RULE_KINDS.items()}
    print(json.dumps(rules, indent=2) if options.json else _as_text(rules))
    return 0


def _describe(option: str, name: str) -> dict[str, Any]:
    """Name, summary, and parameters with their defaults."""
    rule = RULE_KINDS[option].known[name]
    defaults = {key: parameter.default for key, parameter in parameters(rule).items()}
    more = {"after_preempt": AFTER_PREEMPT[0]} if option == "prefill" else {}
    return {"name": name, "summary": summary(option, name), "parameters": defaults | more}


def _as_text(rules: dict[str, list[dict[str, Any]]]) -> str:
    width = max(len(rule["name"]) for listed in rules.values() for rule in listed)
    lines: list[str] = []
    for option, listed in rules.items():
        lines.append(f"--{option}: {RULE_KINDS[option].purpose}")
        for rule in listed:
            own = ", ".join(f"{key}={value}" for key, value in rule["parameters"].items() if key != "after_preempt")
            lines.append(f"  {rule['name']:<{width}}  {rule['summary']}" + (f" ({own})" if own else ""))
        lines.append("")
    lines.append("any --prefill also takes after_preempt=wait: admit nothing in a step that preempts")
    lines.append("a rule of your own is package.module:Class[:key=value,...]; see docs/add-a-policy.md")
    return "\n".join(lines)
