"""Outputs stored in a folder, to compare with another commit, policy or machine. docs/verify.md describes the files.

DIR/verify.json                 which model, and each request's prompt, tokens, log-probabilities and rows' digests
DIR/file_npy/*.npy              the logits at every 100th position, under the contest's names
"""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from chairlift.config.version import VERSION
from chairlift.core.errors import InvalidConfig, InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.lab.verify.cases import Case
from chairlift.lab.verify.output import Outputs, SampleKey, SampleOutput, summarise
from chairlift.telemetry import logit_files
from chairlift.telemetry.logit_files import Logits

FILE = "verify.json"
FORMAT, FORMAT_VERSION = "chairlift-verify", 1


class StoredSample(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of a request."""

    request: int  # index of the prompt
    sample: int
    prompt: list[int]
    params: dict[str, Any]
    adapter: str = ""  # its name; empty: the base alone
    tokens: list[int]
    logprobs: list[float]  # of each token
    digests: list[str] = []  # of each token's row of logits, if known
    files: dict[str, str] = {}  # by position


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    version: int = FORMAT_VERSION
    chairlift: str  # which release wrote it
    model: str
    dtype: str = ""  # empty: unknown, as over HTTP
    about: dict[str, Any] = {}  # what else the bits depend on, for the record
    every: int = logit_files.EVERY
    requests: list[StoredSample]

    def cases(self) -> list[Case]:
        """The stored requests, to run again."""
        by_index = {stored.request: stored for stored in reversed(self.requests)}
        try:
            first = [by_index[i] for i in range(len(by_index))]
            return [
                Case(tuple(each.prompt), msgspec.convert(each.params, SamplingParams), each.adapter) for each in first
            ]
        except (msgspec.ValidationError, InvalidRequest, KeyError) as error:
            raise InvalidConfig(f"{FILE}: requests cannot be run again: {error}") from error


def save(folder: Path, model: str, dtype: str, about: dict[str, Any], cases: Sequence[Case], outputs: Outputs) -> int:
    """Writes the files and returns the number of rows in them. The index comes last: without it a folder is partial."""
    try:
        (folder / logit_files.FOLDER).mkdir(parents=True, exist_ok=True)
        stored = [_keep(folder, i, key, cases[key.case], outputs) for i, key in enumerate(sorted(outputs))]
        baseline = Baseline(chairlift=VERSION, model=model, dtype=dtype, about=about, requests=stored)
        (folder / FILE).write_text(json.dumps(msgspec.to_builtins(baseline), indent=1), encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"{folder}: cannot be written: {error.strerror or error}") from error
    return sum(len(one.files) for one in stored)


def keep(output: SampleOutput, position: int, row: Logits) -> None:
    """Stores a summary of a row, and at every 100th position all of it."""
    summarise(output, position, row)
    if position % logit_files.EVERY == 0:
        output.rows[position] = row


def _keep(folder: Path, index: int, key: SampleKey, case: Case, outputs: Outputs) -> StoredSample:
    output = outputs[key]
    files = {}
    for position, row in sorted(output.rows.items()):
        path = logit_files.path_of(folder, index, logit_files.name_of(case.prompt, output.tokens, position))
        logit_files.write(path, row)
        files[str(position)] = path.name
    rows = [output.summaries[len(case.prompt) - 1 + i] for i in range(len(output.tokens))]
    return StoredSample(
        request=key.case,
        sample=key.sample,
        prompt=list(case.prompt),
        params=_changed(case.params),
        adapter=case.adapter,
        tokens=output.tokens,
        logprobs=[one.logprob for one in rows],
        digests=[one.digest for one in rows if one.digest],
        files=files,
    )


def _changed(params: SamplingParams) -> dict[str, Any]:
    """Only what differs from the defaults."""
    plain = SamplingParams()
    values = {each.name: getattr(params, each.name) for each in fields(SamplingParams)}
    return {name: value for name, value in values.items() if value != getattr(plain, name)}


def load(folder: Path) -> Baseline:
    path = folder / FILE
    try:
        baseline = msgspec.json.decode(path.read_bytes(), type=Baseline)
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise InvalidConfig(f"{path}: not a baseline: {error}") from error
    if baseline.format != FORMAT or baseline.version != FORMAT_VERSION:
        found = f"{baseline.format} version {baseline.version}"
        raise InvalidConfig(f"{path}: must be {FORMAT} version {FORMAT_VERSION}, is {found}")
    for stored in baseline.requests:
        _check(path, stored)
    return baseline


def _check(path: Path, stored: StoredSample) -> None:
    where = f"{path}: request {stored.request}, sample {stored.sample}"
    count, logprobs, digests = len(stored.tokens), len(stored.logprobs), len(stored.digests)
    if logprobs != count or digests not in (0, count):
        raise InvalidConfig(f"{where}: {count} tokens, {logprobs} logprobs and {digests} digests")
    for position, name in stored.files.items():
        if not position.isdigit() or Path(name).name != name:
            raise InvalidConfig(
                f"{where}: files must name files in {logit_files.FOLDER} by position, has {position}: {name}"
            )


def mismatches(baseline: Baseline, model: str, dtype: str, version: str = VERSION) -> str:
    """What rules out a comparison with this model, dtype and version; empty: nothing."""
    facts = (
        ("the model", baseline.model, model),
        ("the dtype", baseline.dtype, dtype),
        ("chairlift", baseline.chairlift, version),
    )
    return ", ".join(f"{name} is {now}, was {was}" for name, was, now in facts if was and now and was != now)
