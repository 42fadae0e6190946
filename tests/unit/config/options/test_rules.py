"""Rules from text: known ones, one's own, and every way to get it wrong."""

import math
import sys
from pathlib import Path

import pytest

from chairlift.config.options.resolve import resolve
from chairlift.config.options.rules import (
    RULE_KINDS,
    make_admission,
    make_policy,
    make_prefill,
    make_router,
    parameters,
)
from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Admitted
from chairlift.core.limits import Limits
from chairlift.core.policies.known import ADMISSIONS, POLICIES, PREFILLS
from chairlift.core.policies.mlfq import Mlfq
from chairlift.core.prefill import Delay, WaitAfterPreempt
from chairlift.core.routing.rules import ROUTERS
from fakes.request_views import drain, view
from fakes.requests import make_request
from fakes.worlds.world import World

ROOT = Path(__file__).parents[4]
MAKERS = {"policy": make_policy, "prefill": make_prefill, "admission": make_admission, "router": make_router}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which modules are looked for and forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.mark.parametrize(
    ("option", "name"), [(option, name) for option, kind in RULE_KINDS.items() for name in kind.known]
)  # fmt: skip
def test_every_known_rule_is_made_by_its_name(option: str, name: str) -> None:
    assert type(MAKERS[option](name)) is {**POLICIES, **PREFILLS, **ADMISSIONS, **ROUTERS}[name]
    assert getattr(resolve({option: name}), option) == name


def test_parameters_reach_the_constructor_in_its_types() -> None:
    policy = make_policy("mlfq: levels = 3, quantum=7,starve=2.5")
    assert isinstance(policy, Mlfq)
    assert (policy._tokens, policy._starve) == ([7.0, 7.0, 14.0, math.inf], 2.5)


def test_each_call_makes_a_new_rule() -> None:
    assert make_policy("fcfs") is not make_policy("fcfs")


@pytest.mark.parametrize("name", PREFILLS)
def test_any_prefill_rule_may_wait_after_a_preemption(name: str) -> None:
    assert isinstance(make_prefill(f"{name}:after_preempt=wait"), WaitAfterPreempt)
    assert type(make_prefill(f"{name}:after_preempt=go")) is PREFILLS[name]


def test_waiting_after_a_preemption_goes_with_other_parameters() -> None:
    rule = make_prefill("delay:factor=0.25,after_preempt=wait")
    assert isinstance(rule, WaitAfterPreempt)
    assert isinstance(rule._rule, Delay)
    assert rule._rule._factor == 0.25


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"policy": "fifo"}, "--policy must be one of fcfs, shortest-first, longest-first, similar-length, priority"),
        ({"policy": "fifo"}, "or package.module:Class of your own, got 'fifo'"),
        ({"policy": "fcsf"}, "or package.module:Class of your own (did you mean fcfs?), got 'fcsf'"),
        ({"policy": "shortest_first:by=prompt"}, "of your own (did you mean shortest-first?), got"),
        ({"policy": "priority:aging=-1"}, "--policy priority: aging must not be negative, got 'priority:aging=-1'"),
        (
            {"prefill": "eager"},
            "--prefill must be one of mixed, timed, prefill-first, decode-first, delay, batched-prefill",
        ),
        ({"admission": "all:x=1"}, "--admission must be one of prompt, peak, reserve, or"),
        ({"policy": "fcfs:by=output"}, "--policy fcfs takes victim; by is unknown, got 'fcfs:by=output'"),
        ({"prefill": "mixed:by=output"}, "--prefill mixed takes after_preempt; by is unknown, got 'mixed:by=output'"),
        ({"admission": "peak:by=output"}, "--admission peak takes no parameters; by is unknown, got 'peak:by=output'"),
        ({"policy": "mlfq:levles=2"}, "--policy mlfq takes levels, quantum, rate, starve; levles is unknown"),
        ({"prefill": "delay:x=1"}, "--prefill delay takes factor, exclusive, after_preempt; x is unknown"),
        ({"prefill": "mixed:after_preempt=no"}, "--prefill must have after_preempt as one of go, wait"),
        ({"policy": "fcfs:after_preempt=wait"}, "fcfs takes victim; after_preempt is unknown"),
        ({"policy": "mlfq:levels=two"}, "--policy must have levels as a whole number, got 'mlfq:levels=two'"),
        ({"policy": "mlfq:levels=2.5"}, "--policy must have levels as a whole number"),
        ({"policy": "mlfq:starve=nan"}, "--policy must have starve as a number"),
        ({"policy": "mlfq:levels=0"}, "--policy mlfq: levels, quantum and rate must be at least 1"),
        ({"policy": "mlfq:levels=100000"}, "levels at most 32, rate at most 1e+06"),
        ({"policy": "mlfq:rate=1e300"}, "levels at most 32, rate at most 1e+06"),
        ({"policy": "shortest-first:by=size"}, "--policy shortest-first: by must be one of output, prompt, total, got"),
        ({"policy": "mlfq:levels"}, "--policy must have parameters as key=value, separated by commas"),
        ({"policy": "mlfq:levels=1,"}, "--policy must have parameters as key=value, separated by commas"),
        ({"policy": "mlfq:levels=1,levels=2"}, "--policy must give levels once"),
        ({"policy": ""}, "--policy must be text"),
        ({"policy": 7}, "--policy must be text"),
        ({"policy": ":Mine"}, "--policy must be one of"),
        ({"policy": "no_such_module:Mine"}, "cannot be loaded from no_such_module (ModuleNotFoundError: No module"),
        ({"policy": "no_such_module:Mine"}, "known ones are fcfs, shortest-first"),
        ({"policy": "..:Mine"}, "--policy cannot be loaded from .."),
        ({"policy": "json:Mine"}, "--policy must name a class, and json has no Mine"),
        ({"policy": "json:loads"}, "--policy must name a class, which loads in json is not"),
        (
            {"policy": "json:JSONDecoder"},
            "must name a subclass of Policy, which JSONDecoder in json is not: from chair",
        ),
        (
            {"policy": "json:JSONDecoder"},
            "from chairlift.core.policy import Policy, then class JSONDecoder(Policy), got",
        ),
        ({"prefill": "json:JSONDecoder"}, "from chairlift.core.policy import Prefill, then class JSONDecoder(Prefill)"),
        (
            {"admission": "chairlift.core.policies.rankings:Fcfs"},
            "must name a subclass of Admission, which Fcfs in chairl",
        ),
        ({"host_memory": "1GiB"}, "host_memory holds blocks that are swapped out: set preemption to swap or auto"),
        ({"preemption": "forget"}, "--preemption must be one of recompute, swap, auto, got 'forget'"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_what_would_be_valid(flags: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        resolve(flags)
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_outside_the_table_of_options_a_mistake_is_told_too() -> None:
    with pytest.raises(InvalidConfig, match=r"policy must be one of fcfs, .*, got 'fifo'"):
        make_policy("fifo")


MINE = """
from __future__ import annotations
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.policies.rankings import LongestFirst
from chairlift.core.policies.rankings import Ranked
from chairlift.core.policy import Admission, Policy, Prefill

class Mine(LongestFirst):
    def __init__(self, by: str = "output", loud: bool = False, *, most: int = 3) -> None:
        super().__init__(by)
        self.given = (by, loud, most)

class Needy(Fcfs):
    def __init__(self, size: int):
        super().__init__()

class Odd(Fcfs):
    def __init__(self, sizes: list[int] = []):
        super().__init__()

class Unready(Fcfs):
    def __init__(self):
        raise OSError("no\\nkey")

class Wrong(Fcfs):
    def first(self, now):
        return 77

class Crashing(Fcfs):
    def victim(self, running, now):
        return 1 / 0

class Watching(Fcfs):
    def watch(self, cache):
        raise RuntimeError("cannot look")

class Annotated(Fcfs):
    def __init__(self, size: Unknown = 3):
        super().__init__()

class Half(Policy):
    def push(self, view, now): ...
    def remove(self, view): ...

class Rankless(Ranked):
    pass

class Shut(Prefill):
    def allow(self, view):
        return None

class Open(Admission):
    def fits(self, candidate, num_new, memory):
        return "yes"
"""


def test_an_own_class_is_loaded_from_the_current_folder(folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    policy = make_policy("mine:Mine:by=prompt,loud=yes,most=9")
    assert policy.given == ("prompt", True, 9)  # type: ignore[attr-defined]
    assert drain(policy, view(1, prompt=2), view(2, prompt=5)) == [2, 1]
    assert resolve({"policy": "mine:Mine"}).policy == "mine:Mine"


def test_an_own_class_may_sit_in_a_package(folder: Path) -> None:
    (folder / "pack").mkdir()
    (folder / "pack" / "mod.py").write_text(MINE)
    assert type(make_policy("pack.mod:Mine")).__name__ == "Mine"


@pytest.mark.parametrize(
    ("option", "given", "complaint"),
    [
        (
            "policy",
            "mine:Mine:by=size",
            "policy Mine: by must be one of output, prompt, total, got 'mine:Mine:by=size'",
        ),
        ("policy", "mine:Mine:loud=perhaps", "policy must have loud as true or false"),
        ("policy", "mine:Mine:quiet=1", "policy Mine takes by, loud, most; quiet is unknown"),
        ("policy", "mine:Needy", "policy Needy needs size"),
        ("policy", "mine:Odd:sizes=3", "policy must leave sizes alone: only int, float, str and bool can be given"),
        ("policy", "mine:Unready", "policy Unready cannot be used (OSError: no key)"),
        ("policy", "mine:Wrong", "policy Wrong does not work when tried out: the policy failed (ValueError: first()"),
        ("policy", "mine:Crashing", "Crashing does not work when tried out: the policy failed (ZeroDivisionError"),
        ("policy", "mine:Watching", "policy Watching cannot be used (RuntimeError: cannot look)"),
        ("policy", "mine:Annotated", "policy Annotated cannot be used (NameError: name 'Unknown' is not defined)"),
        (
            "policy",
            "mine:Half",
            "policy must name a class with all methods, and Half lacks first, victim, got 'mine:Half'",
        ),
        ("policy", "mine:Rankless", "and Rankless lacks rank, got"),
        ("prefill", "mine:Shut", "prefill Shut does not work when tried out: the prefill rule failed (TypeError"),
        ("admission", "mine:Open", "admission Open does not work when tried out: the admission rule failed (TypeError"),
        ("policy", "broken:Mine", "policy cannot be loaded from broken (SyntaxError: "),
        ("policy", "leaving:Mine", "policy cannot be loaded from leaving (SystemExit: 3)"),
    ],
)
def test_what_is_wrong_with_an_own_class_is_told_in_a_line(
    folder: Path, option: str, given: str, complaint: str
) -> None:
    (folder / "mine.py").write_text(MINE)
    (folder / "broken.py").write_text("class Mine(")
    (folder / "leaving.py").write_text("raise SystemExit(3)")
    with pytest.raises(InvalidConfig) as refusal:
        MAKERS[option](given)
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_own_module_does_not_hide_an_installed_one(folder: Path) -> None:
    (folder / "json.py").write_text(MINE)
    with pytest.raises(InvalidConfig, match="json has no Mine"):
        make_policy("json:Mine")


def test_the_example_puts_small_talk_first_and_bounds_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    long = [view(i, prompt=50) for i in range(3)]
    small = [view(10 + i, prompt=3) for i in range(20)]
    order = drain(make_policy("examples.my_policy:SmallTalkFirst:words=10,share=0.5"), *long, *small)
    assert order[:6] == [10, 11, 12, 13, 14, 15]
    assert order.index(0) < 9  # small talk had its share by then
    assert order.index(2) < len(order) - 1


def test_the_example_on_top_of_another_policy_bounds_its_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    requests = [view(1, 0.0, output=90), view(2, 2.0, output=30), view(3, 9.0, output=3)]
    orders = {
        now: drain(make_policy("examples.bounded_wait:BoundedWait:max_wait=10"), *requests, now=now)
        for now in (9.5, 11.0, 12.0, 19.0)
    }
    assert orders == {9.5: [3, 2, 1], 11.0: [1, 3, 2], 12.0: [1, 2, 3], 19.0: [1, 2, 3]}


def test_the_example_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    limits = Limits(vocab_size=50, max_model_len=32, block_size=2, num_blocks=16, max_running=2, max_step_tokens=16)
    policy = make_policy("examples.my_policy:SmallTalkFirst:words=4")
    world = World(limits, policy=policy, arrivals={0: [(make_request(i, range(i, 9), 3),) for i in range(1, 8)]}).run()
    assert [e.request for e in world.events if isinstance(e, Admitted)][:3] == [5, 6, 7]


def test_parameters_are_listed_with_types_and_defaults() -> None:
    listed = {name: (p.annotation, p.default) for name, p in parameters(Mlfq).items()}
    assert listed == {"levels": (int, 6), "quantum": (int, 64), "rate": (float, 2.0), "starve": (float, 10.0)}
