"""Trace files, read back line by line.

Always: an error names its line. A last line without its end, as a killed process leaves it, is skipped.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from chairlift.core.attributes import Attributes
from chairlift.core.errors import ChairliftError, InvalidConfig
from chairlift.core.params import SamplingParams
from chairlift.core.request import Request
from chairlift.telemetry.lines import VERSION, WRITTEN, Add, AnyLine, Header, read


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
