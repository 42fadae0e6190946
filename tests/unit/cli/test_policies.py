import json

import pytest

from chairlift.cli.main import main
from chairlift.core.policies.known import ADMISSIONS, POLICIES, PREFILLS
from chairlift.core.routing.rules import ROUTERS


def test_every_rule_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in (*POLICIES, *PREFILLS, *ADMISSIONS, *ROUTERS):
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert len(line.split()) > 3
    assert any(line.endswith("(by=output, patience=64)") for line in lines)


def test_the_rules_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies", "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)
    assert {kind: [rule["name"] for rule in listed] for kind, listed in rules.items()} == {
        "policy": list(POLICIES),
        "prefill": list(PREFILLS),
        "admission": list(ADMISSIONS),
        "router": list(ROUTERS),
    }
    assert all(rule["summary"].endswith(".") for listed in rules.values() for rule in listed)  # none is cut off
    delay = next(rule for rule in rules["prefill"] if rule["name"] == "delay")
    assert delay["parameters"] == {"factor": 0.5, "exclusive": False, "after_preempt": "go"}


def test_an_unknown_policy_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--policy", "fifo"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("chairlift: error: --policy must be one of fcfs, shortest-first")
    assert error.count("\n") == 1
