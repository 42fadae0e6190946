"""Where one request's time went, in words."""

from collections.abc import Iterator

from chairlift.core.ids import RequestId
from chairlift.telemetry.breakdown import AGAIN, DECODE, OFF, PASSED, PROMPT, QUEUED, Step, Story

_ORDER = (QUEUED, PROMPT, DECODE, PASSED, OFF, AGAIN)
_NAMED = 6  # requests that are named rather than counted


def in_words(story: Story) -> str:
    return "\n".join([*headline(story), "", *_table(story), "", *sentences(story)])


def headline(story: Story) -> Iterator[str]:
    """What was asked for and how long it took."""
    add = story.add
    user = f" of user {add.attributes['user']}" if "user" in add.attributes else ""
    end = f"ended after {_time(story.latency_s)} ({story.finish})" if story.finish else "is not over yet"
    yield f"request {story.request}{user}: {len(add.prompt)} prompt tokens, {story.num_tokens} output tokens; {end}"
    if story.first_token is not None:
        yield f"first token after {_time(story.first_token - add.at)}"


def parts(story: Story) -> Iterator[tuple[str, float, str]]:
    """What its time went to: a name, seconds, and a detail."""
    for part in _ORDER:
        if story.parts[part] or part in story.steps:
            yield part, story.parts[part], _detail(story, part)


def _table(story: Story) -> Iterator[str]:
    for part, seconds, detail in parts(story):
        yield f"  {part:<16}{_time(seconds):>14}{_share(story, part):>7}   {detail}"
    yield f"  {'together':<16}{_time(sum(story.parts.values())):>14}"


def sentences(story: Story) -> Iterator[str]:
    """Why."""
    yield from _queue(story)
    yield from _prompt(story)
    for stay in story.stays:
        how = "moved out to host memory" if stay.is_swapped else "forgotten, to be computed again"
        when = f"Stepped off at {_time(stay.start - story.add.at)} for {_time(stay.end - stay.start)}"
        yield f"{when}, for others or for want of memory; its {stay.num_computed} computed tokens were {how}."
    yield from _decode(story)


def _queue(story: Story) -> Iterator[str]:
    yield f"When it came, {_count(story.num_running, 'request')} ran and {story.num_ahead} waited before it."
    if story.source is not None:
        yield f"It waited for request {story.source}, a sample of the same prompt, to compute that prompt."
    if story.passed:
        later = f"; {_list(story.overtaking)} of them had come later" if story.overtaking else ""
        yield f"While it waited, {_list(story.passed)} stepped on{later}."


def _prompt(story: Story) -> Iterator[str]:
    steps = story.steps.get(PROMPT, [])
    if story.num_cached:
        yield f"{story.num_cached} of its prompt tokens were found in the cache."
    if len(steps) > 1:
        chunks = " + ".join(str(step.count) for step in steps[:_NAMED]) + (" + ..." if len(steps) > _NAMED else "")
        yield f"Its prompt was computed in {len(steps)} chunks: {chunks} tokens."


def _decode(story: Story) -> Iterator[str]:
    steps = story.steps.get(DECODE, [])
    if not steps:
        return
    others = [step.num_others for step in steps]
    yield f"It decoded beside {sum(others) / len(steps):.1f} others on average, {max(others)} at most."
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


def _detail(story: Story, part: str) -> str:
    if part == QUEUED:
        reasons = [
            (why, seconds) for why, seconds in sorted(story.reasons.items(), key=lambda item: -item[1]) if seconds
        ]
        return ", ".join(f"{why} {_time(seconds)}" for why, seconds in reasons)
    if part == OFF:
        return _times(len(story.stays))
    if part == PASSED:
        return "seated, while steps went on without it"
    if part not in story.steps:
        return "in the step that completed it"  # a further sample's, from its sibling's
    return _count(len(story.steps[part]), "step")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _mean(steps: list[Step]) -> str:
    return _time(sum(step.seconds for step in steps) / len(steps))


def _list(requests: list[RequestId]) -> str:
    if len(requests) > _NAMED:
        return f"{len(requests)} requests"
    return ("request " if len(requests) == 1 else "requests ") + ", ".join(map(str, requests))


def _share(story: Story, part: str) -> str:
    return f"{story.parts[part] / story.latency_s:.0%}" if story.latency_s > 0 else ""


def _time(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds >= 1 else f"{1000 * seconds:.2f} ms"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
