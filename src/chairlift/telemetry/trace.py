"""Trace files, read back line by line.

Always: an error names its line. A last line without its end, as a killed process leaves it, is skipped.
"""

from array import array
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import msgspec

from chairlift.core.attributes import Attributes
from chairlift.core.errors import ChairliftError, InvalidConfig
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepPlan
from chairlift.core.request import Request
from chairlift.telemetry.lines import VERSION, WRITTEN, Add, AnyLine, Header, Input, Plan, read
from chairlift.telemetry.report import Report, Slo
from chairlift.telemetry.timeline import Timeline


def digest(plan: StepPlan) -> str:
    """A digest of a plan, to show that a replay plans the same.

    Of a decode it covers only the block written to: the others were covered when they were written or shared.
    """
    numbers = array("q", (plan.step, plan.num_tokens, plan.num_decodes, len(plan.chunks)))
    for index, chunk in enumerate(plan.chunks):
        first = chunk.num_blocks - 1 if index < plan.num_decodes else 0
        numbers.extend((chunk.request.id, chunk.start, chunk.count, chunk.num_tokens, chunk.num_blocks))
        numbers.extend(chunk.blocks[first : chunk.num_blocks])
        numbers.append(len(chunk.samples))
        numbers.extend(request.id for request in chunk.samples)
        if chunk.drafts:
            numbers.extend((-len(chunk.drafts), *chunk.drafts))  # no request or count is negative
    for index, chunk in enumerate(plan.chunks):
        for table in chunk.tables[1:]:
            num_covered = len(table) // chunk.num_blocks if index < plan.num_decodes else len(table)
            numbers.extend(table[len(table) - num_covered :])
    for moves in (plan.copies, plan.swap_outs, plan.swap_ins):
        numbers.append(len(moves))
        for move in moves:
            numbers.extend(move)
    return blake2b(numbers.tobytes(), digest_size=8).hexdigest()


class Trace:
    """A trace file: its header at once, its lines at each iteration."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._decode = msgspec.json.Decoder(WRITTEN).decode
        first = next(self._read(), (1, b""))[1]
        try:
            version = msgspec.json.decode(first, type=_Version).version
            if version == VERSION:
                self.header = msgspec.json.decode(first, type=Header)
        except (msgspec.MsgspecError, ChairliftError) as error:
            raise InvalidConfig(f"{path}, line 1: not the header of a trace: {error}") from error
        if version != VERSION:
            raise InvalidConfig(f"{path}: trace version {version} is not known; this release reads version {VERSION}")

    def __iter__(self) -> Iterator[AnyLine]:
        return (line for _, line in self.numbered())

    def numbered(self) -> Iterator[tuple[int, AnyLine]]:
        """Each line after the header with its number in the file."""
        for number, text in self._read():
            if number == 1:
                continue
            try:
                yield number, read(self._decode(text))
            except msgspec.MsgspecError as error:
                raise InvalidConfig(f"{self.path}, line {number}: {error}") from error

    def _read(self) -> Iterator[tuple[int, bytes]]:
        try:
            with self.path.open("rb") as file:
                for number, text in enumerate(file, 1):
                    if text.endswith(b"\n") or number == 1:
                        yield number, text
        except OSError as error:
            raise InvalidConfig(f"{self.path}: cannot be read: {error.strerror or error}") from error


class _Version(msgspec.Struct, tag_field="kind", tag="trace"):
    version: int


def samples_of(line: Add) -> tuple[Request, ...]:
    """The requests as the scheduler saw them; their sampling parameters are not in the trace."""
    params = SamplingParams(
        max_tokens=line.max_tokens,
        min_tokens=line.min_tokens,
        n=line.n,
        beam_width=line.beam_width,
        length_penalty=line.length_penalty if line.beam_width else 1.0,
    )
    scored = replace(params, prompt_logprobs=line.prompt_logprobs)
    prompt, stop_ids, attributes = tuple(line.prompt), frozenset(line.stop_ids), _attributes(line)
    return tuple(
        Request(
            id=request,
            prompt=prompt,
            params=params if index else scored,  # a prompt is scored once, for its first sample
            max_output=line.max_output,
            seed=0,
            sample_index=index,
            output=tuple(line.output),
            num_moved=line.num_moved,
            stop_ids=stop_ids,
            attributes=attributes,
            timeout_s=line.timeout_s,
        )
        for index, request in enumerate(line.requests)
    )


def _attributes(line: Add) -> Attributes:
    try:
        return msgspec.convert(line.attributes, Attributes)
    except msgspec.ValidationError as error:
        raise InvalidConfig(f"the trace's attributes of request {line.requests[0]}: {error}") from error


def summarize(trace: Trace, slo: Slo | None = None) -> Report:
    """The figures of a recorded run from its trace, equal to those of the run itself."""
    timeline = Timeline()
    for line in trace:
        if not isinstance(line, Input):
            timeline.add(line)
        elif isinstance(line, Add):
            timeline.added(samples_of(line), line.at - (line.delay_s or 0.0))
        elif isinstance(line, Plan) and line.step is not None:
            timeline.stepped(line.num_decoding, line.blocks, line.blocks_saved)
    return timeline.report(slo)
