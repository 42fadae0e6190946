"""Knobs: the settings that tuning may change, and their values.

Always: a choice names a value for every knob, and the default choice is what the settings do by themselves. Options
that the user has set are no knobs. Values follow from profile and workload: at most twice the default running requests
and step tokens, no more running requests than there are, and only rules that the workload can tell apart.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from chairlift.config.settings import Settings
from chairlift.core.memory.preemption import MODES
from chairlift.core.policies.known import ADMISSIONS
from chairlift.core.routing.rules import ROUTERS
from chairlift.lab.sim.profile import Profile
from chairlift.lab.workload.item import Item

Value = str | int
Choice = Mapping[str, Value]

_PREFILLS = (
    "mixed", "prefill-first", "decode-first:free=0.1", "decode-first", "delay", "batched-prefill:size=4",
    "batched-prefill:size=16",
)  # fmt: skip
_BLOCK_SIZES = (16, 32, 64, 128)
_STEP_PROMPTS = (1, 2, 4, 8, 16, 32, 0)  # 0: no limit


@dataclass(frozen=True, slots=True)
class Knob:
    name: str  # a field of Settings
    values: tuple[Value, ...]
    default: Value
    is_ordered: bool = False  # neighbours do nearly the same

    def near(self, value: Value) -> tuple[Value, ...]:
        """The neighbours of a value, or all others where there is no order."""
        if not self.is_ordered:
            return tuple(each for each in self.values if each != value)
        index = self.values.index(value)
        return self.values[max(0, index - 1) : index] + self.values[index + 1 : index + 2]


def knobs_of(
    settings: Settings,
    profile: Profile,
    items: Sequence[Item],
    threads: Sequence[int] = (),
    fixed: Collection[str] = (),
) -> tuple[Knob, ...]:
    """`threads`: the numbers that have profiles, the default first; empty if there is no choice."""
    limits = profile.limits(settings)
    running = _ladder(limits.max_running)
    enough = [count for count in running if count >= len(items)]
    if enough:
        running = [count for count in running if count <= max(enough[0], limits.max_running)]
    found = (
        Knob("policy", _with(_policies(items), settings.policy), settings.policy),
        _numbers("max_running", running, limits.max_running),
        _numbers("max_step_tokens", _ladder(limits.max_step_tokens), limits.max_step_tokens),
        Knob("max_step_prompts", _with(_STEP_PROMPTS, settings.max_step_prompts), settings.max_step_prompts, True),
        Knob("prefill", _with(_PREFILLS, settings.prefill), settings.prefill),
        Knob("admission", _with(tuple(ADMISSIONS), settings.admission), settings.admission),
        Knob("preemption", MODES, settings.preemption),
        _numbers("block_size", _BLOCK_SIZES, settings.block_size),
        *([Knob("router", _with(tuple(ROUTERS), settings.router), settings.router)] if settings.replicas > 1 else []),
        *([_numbers("threads", threads, threads[0])] if len(threads) > 1 else []),
    )
    return tuple(knob for knob in found if knob.name not in fixed)


def default_choice(knobs: Sequence[Knob]) -> Choice:
    return {knob.name: knob.default for knob in knobs}


def valid(choice: Choice, knobs: Sequence[Knob], settings: Settings) -> Choice:
    """The same choice with steps that have room for all running requests."""
    running = int(choice.get("max_running", settings.max_running or 1))
    for knob in knobs:
        if knob.name == "max_step_tokens" and int(choice[knob.name]) < running:
            enough = [value for value in knob.values if int(value) >= running]
            return {**choice, knob.name: enough[0] if enough else knob.values[-1]}
    return choice


def with_choice(settings: Settings, choice: Choice) -> Settings:
    return replace(settings, **choice)  # type: ignore[arg-type]


def changes(choice: Choice, knobs: Sequence[Knob]) -> dict[str, Value]:
    """What differs from the default."""
    return {knob.name: choice[knob.name] for knob in knobs if choice[knob.name] != knob.default}


def shown(choice: Mapping[str, Value]) -> str:
    """As flags; the default has none."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in choice.items()) or "the defaults"


def _ladder(default: int) -> list[int]:
    """From a thirty-second of the default to twice the default, by powers of two and the middles between them."""
    powers = [default >> down for down in range(5, 0, -1) if default >> down] + [default, 2 * default]
    middles = [(low + high) // 2 for low, high in pairwise(powers)]
    return sorted({*powers, *middles})


def _policies(items: Sequence[Item]) -> tuple[str, ...]:
    found = ["fcfs", "shortest-first", "longest-first", "similar-length", "mlfq"]
    found += ["longest-prefix"] if any(item.hash_ids for item in items) else []
    found += ["fair-share"] if len({item.attributes.user for item in items}) > 1 else []
    found += ["priority"] if len({item.attributes.priority for item in items}) > 1 else []
    found += ["deadline"] if any(item.attributes.deadline_s is not None for item in items) else []
    return tuple(found)


def _numbers(name: str, values: Sequence[int], default: int) -> Knob:
    return Knob(name, tuple(sorted({*values, default})), default, is_ordered=True)


def _with(values: tuple[Value, ...], default: Value) -> tuple[Value, ...]:
    return values if default in values else (default, *values)
