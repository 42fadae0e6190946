"""Rules of scheduling and routing from text: `NAME[:key=value,...]`, or one's own, `module:Class[:key=value,...]`.

A rule's parameters are those of its constructor, typed by their annotations (int, float, str, bool). A user's own class
subclasses the kind's base class, in a module of the current folder or on PYTHONPATH, and is tried before use. Always: a
rule that cannot be made raises `InvalidConfig` in one line that says what is valid. Each call makes a new rule: rules
keep state.
"""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from chairlift.config.options.values import Parser, boolean, did_you_mean, number, text
from chairlift.core.errors import InvalidConfig
from chairlift.core.policies.known import ADMISSIONS, POLICIES, PREFILLS
from chairlift.core.policy import Admission, Policy, Prefill
from chairlift.core.prefill import WaitAfterPreempt
from chairlift.core.routing import routing
from chairlift.core.routing.router import Router
from chairlift.core.routing.rules import ROUTERS
from chairlift.core.scheduling import trial as scheduling_trial

T = TypeVar("T")
_GIVEN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
AFTER_PREEMPT = ("go", "wait")  # what any --prefill rule does in a step that preempts


@dataclass(frozen=True, slots=True)
class RuleKind:
    option: str  # as in Settings; folders, base classes and arguments are named like it
    purpose: str
    base: type
    known: Mapping[str, type]
    failure: Callable[..., str | None] = scheduling_trial.failure  # tries a rule, given by the option's name


RULE_KINDS = {
    kind.option: kind
    for kind in (
        RuleKind(
            "policy", "which request is admitted next, and which is preempted when memory runs out", Policy, POLICIES
        ),
        RuleKind("prefill", "which prompts may enter a step", Prefill, PREFILLS),
        RuleKind("admission", "whether memory allows the next request", Admission, ADMISSIONS),
        RuleKind("router", "which replica a request goes to", Router, ROUTERS, routing.failure),
    )
}


def make_policy(given: str) -> Policy:
    policy: Policy = _make("policy", given)
    return policy


def make_prefill(given: str) -> Prefill:
    prefill: Prefill = _make("prefill", given)
    return prefill


def make_admission(given: str) -> Admission:
    admission: Admission = _make("admission", given)
    return admission


def make_router(given: str) -> Router:
    router: Router = _make("router", given)
    return router


def rule_text(option: str) -> Parser:
    """Text that names a rule which can be made; for the table of options."""

    def parse(value: object) -> str:
        given = text(value).strip()
        _parse(RULE_KINDS[option], given)
        return given

    return parse


def summary(option: str, given: str) -> str:
    """What a rule does: the first sentence of its class, or of its module."""
    name = given.partition(":")[0]
    rule = RULE_KINDS[option].known.get(name)
    module = sys.modules.get(name) if rule is None else inspect.getmodule(rule)
    said = vars(rule).get("__doc__") if rule is not None else None
    paragraph = " ".join((said or getattr(module, "__doc__", None) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph)[0]


def parameters(rule: type) -> dict[str, inspect.Parameter]:
    """The parameters of a rule's constructor, by name; annotations are types, not text."""
    own = [p for p in inspect.signature(rule, eval_str=True).parameters.values() if p.kind in _GIVEN]
    return {p.name: p.replace(annotation=str) if p.annotation is p.empty else p for p in own}


def _make(option: str, given: str) -> Any:
    try:
        return _parse(RULE_KINDS[option], given)
    except ValueError as error:
        raise InvalidConfig(f"{option} {error}, got {given!r}") from error


def _parse(kind: RuleKind, given: str) -> Any:
    """The rule; raises `ValueError` with the rest of a sentence that begins with the option's name."""
    name, _, rest = given.partition(":")
    module, is_known = name, name in kind.known
    if is_known:
        rule = kind.known[name]
    elif module and rest and "=" not in rest.partition(":")[0]:
        name, _, rest = rest.partition(":")
        rule = _load(kind, module, name)
    else:
        close = did_you_mean(name, kind.known)
        raise ValueError(f"must be one of {', '.join(kind.known)}, or package.module:Class of your own{close}")
    values = _values(rest)
    waits = kind.option == "prefill" and _after_preempt(values)
    arguments = _arguments(kind, name, rule, values)
    if not is_known:
        problem = _construct(name, lambda: kind.failure(**{kind.option: rule(**arguments)}))
        if problem is not None:
            raise ValueError(f"{name} does not work when tried out: {_line(problem)}")
    made = _construct(name, lambda: rule(**arguments))
    return WaitAfterPreempt(made) if waits else made


def _arguments(kind: RuleKind, name: str, rule: type, values: Mapping[str, str]) -> dict[str, object]:
    taken = _construct(name, lambda: parameters(rule))
    for key in values:
        if key not in taken:
            valid = [*taken, "after_preempt"] if kind.option == "prefill" else list(taken)
            raise ValueError(f"{name} takes {', '.join(valid) if valid else 'no parameters'}; {key} is unknown")
    missing = [key for key, parameter in taken.items() if parameter.default is parameter.empty and key not in values]
    if missing:
        raise ValueError(f"{name} needs {', '.join(missing)}")
    return {key: _value(key, value, taken[key]) for key, value in values.items()}


def _values(given: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for item in given.split(",") if given else ():
        key, equals, value = (part.strip() for part in item.partition("="))
        if not (key and equals and value):
            raise ValueError("must have parameters as key=value, separated by commas")
        if key in values:
            raise ValueError(f"must give {key} once")
        values[key] = value
    return values


def _after_preempt(values: dict[str, str]) -> bool:
    choice = values.pop("after_preempt", AFTER_PREEMPT[0])
    if choice not in AFTER_PREEMPT:
        raise ValueError(f"must have after_preempt as one of {', '.join(AFTER_PREEMPT)}")
    return choice == "wait"


def _value(key: str, value: str, parameter: inspect.Parameter) -> object:
    parse = _PARSERS.get(parameter.annotation)
    if parse is None:
        raise ValueError(f"must leave {key} alone: only int, float, str and bool can be given")
    try:
        return parse(value)
    except ValueError as error:
        raise ValueError(f"must have {key} as {_SHAPES[parameter.annotation]}") from error


_PARSERS: dict[object, Callable[[str], object]] = {int: int, float: number, str: str, bool: boolean}
_SHAPES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _construct(name: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except ValueError as error:  # a constructor refuses its values
        raise ValueError(f"{name}: {_line(error)}") from error
    except Exception as error:
        raise ValueError(f"{name} cannot be used ({type(error).__name__}: {_line(error)})") from error


def _load(kind: RuleKind, module: str, attribute: str) -> type:
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(
            f"cannot be loaded from {module}: give MODULE:Class of a module in this folder or on PYTHONPATH"
        )
    if os.getcwd() not in sys.path:  # last: it never hides an installed module
        sys.path.append(os.getcwd())
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except (Exception, SystemExit) as error:
        known = f"; known ones are {', '.join(kind.known)}" if isinstance(error, ImportError) else ""
        raise ValueError(f"cannot be loaded from {module} ({type(error).__name__}: {_line(error)}){known}") from error
    if found is None:
        raise ValueError(f"must name a class, and {module} has no {attribute}")
    if not inspect.isclass(found):
        raise ValueError(f"must name a class, which {attribute} in {module} is not")
    if not issubclass(found, kind.base):
        base = kind.base.__name__
        way_out = f"from {kind.base.__module__} import {base}, then class {attribute}({base})"
        raise ValueError(f"must name a subclass of {base}, which {attribute} in {module} is not: {way_out}")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise ValueError(f"must name a class with all methods, and {attribute} lacks {', '.join(missing)}")
    return found


def _line(error: object) -> str:
    return " ".join(str(error).split())
