"""The rules of a scheduler, and the scheduler that follows them: live, simulated and tested alike."""

import msgspec

from chairlift.config.options.rules import make_admission, make_policy, make_prefill
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.ports import Drafter
from chairlift.core.routing.news import PrefixNews
from chairlift.core.scheduling.scheduler import Scheduler


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Scheduling rules, as the command line names them."""

    policy: str = "fcfs"
    prefill: str = "mixed"
    admission: str = "prompt"
    preemption: Preemption = Preemption()
    prefix_cache: bool = True


def make_scheduler(
    limits: Limits, rules: Rules, drafter: Drafter | None = None, news: PrefixNews | None = None
) -> Scheduler:
    return Scheduler(
        limits,
        make_policy(rules.policy),
        make_prefill(rules.prefill),
        make_admission(rules.admission),
        rules.preemption,
        rules.prefix_cache,
        drafter,
        news,
    )
