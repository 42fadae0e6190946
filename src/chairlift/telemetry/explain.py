"""A latency breakdown in words."""

from collections.abc import Iterator

from chairlift.core.ids import RequestId
from chairlift.telemetry.breakdown import Breakdown, RequestStep
from chairlift.telemetry.phases import DECODE, PREEMPTED, PROMPT, QUEUED, RECOMPUTED, SKIPPED

_ORDER = (QUEUED, PROMPT, DECODE, SKIPPED, PREEMPTED, RECOMPUTED)
_NAMED = 6  # requests that are named rather than counted


def in_words(breakdown: Breakdown) -> str:
    return "\n".join([*headline(breakdown), "", *_table(breakdown), "", *sentences(breakdown)])


def headline(breakdown: Breakdown) -> Iterator[str]:
    """What was asked for and how long it took."""
    add = breakdown.add
    user = f" of user {add.attributes['user']}" if "user" in add.attributes else ""
    end = f"ended after {_time(breakdown.latency_s)} ({breakdown.finish})" if breakdown.finish else "is not over yet"
    tokens = f"{len(add.prompt)} prompt tokens, {breakdown.num_tokens} output tokens"
    yield f"request {breakdown.request}{user}: {tokens}; {end}"
    if breakdown.first_token is not None:
        yield f"first token after {_time(breakdown.first_token - add.at)}"


def parts(breakdown: Breakdown) -> Iterator[tuple[str, float, str]]:
    """Each part's name, seconds and detail."""
    for part in _ORDER:
        if breakdown.parts[part] or part in breakdown.steps:
            yield part, breakdown.parts[part], _detail(breakdown, part)


def _table(breakdown: Breakdown) -> Iterator[str]:
    for part, seconds, detail in parts(breakdown):
        share = f"{seconds / breakdown.latency_s:.0%}" if breakdown.latency_s > 0 else ""
        yield f"  {part:<16}{_time(seconds):>14}{share:>7}   {detail}"
    yield f"  {'together':<16}{_time(sum(breakdown.parts.values())):>14}"


def sentences(breakdown: Breakdown) -> Iterator[str]:
    """The reasons."""
    yield from _queue(breakdown)
    yield from _prompt(breakdown)
    for span in breakdown.preempted:
        how = "moved out to host memory" if span.is_swapped else "forgotten, to be computed again"
        when = f"Preempted at {_time(span.start - breakdown.add.at)} for {_time(span.end - span.start)}"
        yield f"{when}, for others or for want of memory; its {span.num_computed} computed tokens were {how}."
    yield from _decode(breakdown)


def _queue(breakdown: Breakdown) -> Iterator[str]:
    yield f"When it came, {_count(breakdown.num_running, 'request')} ran and {breakdown.num_ahead} waited before it."
    if breakdown.source is not None:
        yield f"It waited for request {breakdown.source}, a sample of the same prompt, to compute that prompt."
    if breakdown.passed:
        later = f"; {_list(breakdown.overtaking)} of them had come later" if breakdown.overtaking else ""
        yield f"While it waited, {_list(breakdown.passed)} began to run{later}."


def _prompt(breakdown: Breakdown) -> Iterator[str]:
    steps = breakdown.steps.get(PROMPT, [])
    if breakdown.num_cached or breakdown.num_missed:
        source = "a checkpoint" if breakdown.has_checkpoints else "the cache"
        yield f"{breakdown.num_cached:,} of its {len(breakdown.add.prompt):,} prompt tokens came from {source}."
    if breakdown.num_missed:
        why = "no state or window was kept to go on from"
        yield f"{breakdown.num_missed:,} more were in the cache for some layers alone: {why}."
    if len(steps) > 1:
        chunks = " + ".join(str(step.count) for step in steps[:_NAMED]) + (" + ..." if len(steps) > _NAMED else "")
        yield f"Its prompt was computed in {len(steps)} chunks: {chunks} tokens."


def _decode(breakdown: Breakdown) -> Iterator[str]:
    steps = breakdown.steps.get(DECODE, [])
    if not steps:
        return
    others = [step.num_others for step in steps]
    if max(others):
        yield f"It decoded beside {sum(others) / len(steps):.1f} others on average, {max(others)} at most."
    else:
        yield "It decoded alone."
    if num_drafts := sum(step.count - 1 for step in steps):
        yield f"{_count(num_drafts, 'token')} were drafted for it, {num_drafts / len(steps):.1f} a step."
    mixed = [step for step in steps if step.num_prompt_tokens]
    plain = [step for step in steps if not step.num_prompt_tokens]
    if mixed:
        yield (
            f"{len(mixed)} of its decode steps also computed prompts of others "
            f"({sum(step.num_prompt_tokens for step in mixed) / len(mixed):.0f} tokens a step): {_mean(mixed)} a step"
            + (f", against {_mean(plain)} without." if plain else ".")
        )


def _detail(breakdown: Breakdown, part: str) -> str:
    if part == QUEUED:
        reasons = sorted(breakdown.reasons.items(), key=lambda item: -item[1])
        return ", ".join(f"{why} {_time(seconds)}" for why, seconds in reasons if seconds)
    if part == PREEMPTED:
        return "once" if len(breakdown.preempted) == 1 else f"{len(breakdown.preempted)} times"
    if part == SKIPPED:
        return "running, while steps went on without it"
    if part not in breakdown.steps:
        return "in the step that completed it"  # of a forked sample
    return _count(len(breakdown.steps[part]), "step")


def _mean(steps: list[RequestStep]) -> str:
    return _time(sum(step.seconds for step in steps) / len(steps))


def _list(requests: list[RequestId]) -> str:
    if len(requests) > _NAMED:
        return f"{len(requests)} requests"
    return ("request " if len(requests) == 1 else "requests ") + ", ".join(map(str, requests))


def _time(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds >= 1 else f"{1000 * seconds:.2f} ms"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
