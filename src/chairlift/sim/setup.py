"""A scheduler from its rules; and the rules of a simulated run, from settings and profile."""

from chairlift.config.options.rules import make_admission, make_policy, make_prefill
from chairlift.config.settings import Settings
from chairlift.core.limits import Limits
from chairlift.core.ports import Drafter
from chairlift.core.scheduling.preemption import Preemption
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.sim.profile import Profile
from chairlift.telemetry.lines import Rules


def rules_of(settings: Settings, profile: Profile, limits: Limits) -> Rules:
    return Rules(
        policy=settings.policy,
        prefill=settings.prefill,
        admission=settings.admission,
        preemption=_preemption(settings, profile, limits),
        prefix_cache=settings.prefix_cache,
    )


def make_scheduler(limits: Limits, rules: Rules, drafter: Drafter | None = None) -> Scheduler:
    return Scheduler(
        limits,
        make_policy(rules.policy),
        make_prefill(rules.prefill),
        make_admission(rules.admission),
        rules.preemption,
        rules.prefix_cache,
        drafter,
    )


def _preemption(settings: Settings, profile: Profile, limits: Limits) -> Preemption:
    if settings.preemption == "recompute":
        return Preemption(requeue=settings.requeue)
    host, block_bytes = settings.host_memory, limits.block_size * profile.kv_token_bytes
    return Preemption(
        mode=settings.preemption,
        num_host_blocks=limits.num_blocks if host is None else host // block_bytes,
        block_copy_s=limits.block_size * profile.cost.swap_token_s,
        step_times=profile.cost.prompt_times(limits.max_model_len),
        requeue=settings.requeue,
    )
