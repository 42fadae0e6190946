"""The rules of a simulated run, and its fleet, from settings and profile."""

from functools import partial

from chairlift.config.options.rules import make_router
from chairlift.config.scheduler import Rules, make_scheduler
from chairlift.config.settings import Settings
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.moving import MovePrice, host_blocks_of, host_blocks_to_move
from chairlift.core.routing.roster import Roles
from chairlift.lab.sim.fleet.changes import NO_CHANGES, Changes
from chairlift.lab.sim.fleet.moves import NO_SPLIT, Split
from chairlift.lab.sim.fleet.run import ReplicaRun
from chairlift.lab.sim.profile import Profile
from chairlift.telemetry.timeline import Timeline


def rules_of(settings: Settings, profile: Profile, limits: Limits) -> Rules:
    return Rules(
        policy=settings.policy,
        prefill=settings.prefill,
        admission=settings.admission,
        preemption=_preemption(settings, profile, limits),
        prefix_cache=settings.prefix_cache,
    )


def make_fleet(
    settings: Settings,
    profile: Profile,
    limits: Limits,
    seed: int = 0,
    changes: Changes = NO_CHANGES,
    timeline: Timeline | None = None,
) -> ReplicaRun:
    make = partial(make_scheduler, limits, rules_of(settings, profile, limits))
    return ReplicaRun(
        make,
        settings.replicas,
        make_router(settings.router),
        profile.cost.of_slots(limits.max_running),
        profile.depth,
        seed,
        changes,
        timeline=timeline,
        split=_split(settings, profile, limits),
    )


def _split(settings: Settings, profile: Profile, limits: Limits) -> Split:
    if settings.roles is None:
        return NO_SPLIT
    block_bytes = limits.block_size * profile.kv_token_bytes
    price = MovePrice(block_bytes, limits.pages, profile.copied_per_s, profile.fetched_per_s)
    return Split(Roles(settings.replica_roles), price)


def _preemption(settings: Settings, profile: Profile, limits: Limits) -> Preemption:
    is_recompute, host = settings.preemption == "recompute", settings.host_memory
    if is_recompute and settings.roles is None:
        return Preemption(requeue=settings.requeue)
    block_bytes = limits.block_size * profile.kv_token_bytes
    wanted = host_blocks_to_move(limits, block_bytes) if is_recompute else limits.num_blocks
    num_host_blocks = min(limits.num_blocks, wanted) if host is None else host_blocks_of(host, block_bytes)
    return Preemption(
        mode=settings.preemption,
        num_host_blocks=num_host_blocks,
        block_copy_s=limits.block_size * profile.cost.swap_token_s,
        step_times=profile.cost.prompt_times(limits.max_model_len),
        requeue=settings.requeue,
    )
