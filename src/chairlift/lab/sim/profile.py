"""Profiles: how long a model's steps take on a device, as a versioned file; docs/formats.md has every field.

Always: a profile that was read is complete and valid; other files are refused in one line. Built-in ones have names.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from chairlift.config.fields import Fields
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.core.memory.pages import Group, pages_of
from chairlift.core.moving import FIRST_BYTES_PER_S
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.frontends import Frontends

FORMAT = "chairlift-profile"
VERSION = 1
DEFAULT = "h200-llama2-7b"

_FOLDER = files("chairlift.lab.sim") / "profiles"
_SIZES = ("vocab_size", "max_model_len", "max_running", "max_step_tokens", "kv_token_bytes")
_RATES = tuple(field.name for field in fields(CostModel) if field.name.endswith("_s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str
    model: str
    device: str
    dtype: str
    vocab_size: int
    max_model_len: int
    max_running: int  # limits of a run that asks for none: those that it was calibrated with
    max_step_tokens: int
    kv_token_bytes: int  # in a block; where layers form groups, of one of them
    kv_memory: int  # bytes
    cost: CostModel
    groups: tuple[Group, ...] = ()  # as in `Limits`
    depth: int = 1  # plans that its runner takes before the first is collected
    # Outside the steps: a request over HTTP reaches the scheduler, and its first token the client, so much later.
    arrival_s: float = 0.0
    arrival_token_s: float = 0.0  # and for each prompt token, which keeps a front end busy
    frontends: int = 1  # HTTP processes of the server that it was calibrated with
    # Keys and values that a request takes to another replica, at the source and at the target; bytes a second.
    copied_per_s: float = FIRST_BYTES_PER_S
    fetched_per_s: float = FIRST_BYTES_PER_S
    note: str = ""  # where the numbers come from
    measured: tuple[Mapping[str, float], ...] = ()  # what they were fitted to, for the record

    def limits(self, settings: Settings) -> Limits:
        """The settings' limits, and the profile's where these are not set."""
        size, steps = settings.block_size, settings.max_step_tokens
        running = settings.max_running or min(self.max_running, steps or self.max_running)
        max_len = settings.max_model_len or self.max_model_len
        num_blocks, max_step = settings.num_blocks, steps or max(self.max_step_tokens, running)
        if num_blocks is None:
            # More than all running requests at full length can never be used.
            num_blocks = (settings.kv_memory or self.kv_memory) // (size * self.kv_token_bytes)
            pages = pages_of(size, max_step, self.groups)
            num_blocks = min(num_blocks, running * pages.num_in_prompt(max_len))
        return Limits(
            vocab_size=self.vocab_size,
            max_model_len=max_len,
            block_size=size,
            num_blocks=num_blocks,
            max_running=running,
            max_step_tokens=max_step,
            max_step_prompts=settings.max_step_prompts,
            groups=self.groups,
        )

    def make_frontends(self, seed: int) -> Frontends:
        """What is between clients and all replicas: the way there, with that of a first token back."""
        return Frontends(self.frontends, self.arrival_s, self.arrival_token_s, seed)

    def check_model(self, model: str) -> None:
        if model != self.model:
            raise InvalidConfig(f"profile {self.name} is of model {self.model}, not of {model}; calibrate one for it")

    def write(self, path: Path) -> None:
        values = {"format": FORMAT, "version": VERSION} | asdict(self)
        try:
            path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise InvalidConfig(f"{path}: cannot be written: {error.strerror}") from error


def built_in() -> list[str]:
    return sorted(entry.name.removesuffix(".json") for entry in _FOLDER.iterdir() if entry.name.endswith(".json"))


def load_profile(name: str) -> Profile:
    """A built-in profile by its name, or one from a file."""
    if name in built_in():
        return parse_profile((_FOLDER / f"{name}.json").read_text(encoding="utf-8"), name)
    try:
        return parse_profile(Path(name).read_text(encoding="utf-8"), name)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InvalidConfig(f"profile {name}: no such file; built in are: {', '.join(built_in())}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"profile {name}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def parse_profile(text: str, origin: str) -> Profile:
    values = _object(text, origin)
    known = Fields(f"profile {origin}", values)
    cost = values.get("cost")
    if not isinstance(cost, dict):
        raise known.bad("cost", "must be a map")
    measured = values.get("measured", [])
    if not isinstance(measured, list) or not all(isinstance(entry, dict) for entry in measured):
        raise known.bad("measured", "must be a list of maps")
    facts: dict[str, Any] = {key: _text(known, key) for key in ("name", "model", "device", "dtype")}
    return Profile(
        **facts | {key: known.size(key) for key in _SIZES},
        kv_memory=round(known.positive("kv_memory")),
        cost=_cost(Fields(f"profile {origin}: cost", cost)),
        groups=_groups(known),
        depth=known.size("depth", 1),
        arrival_s=known.number("arrival_s", 0.0),
        arrival_token_s=known.number("arrival_token_s", 0.0),
        frontends=known.size("frontends", 1),
        copied_per_s=known.positive("copied_per_s", FIRST_BYTES_PER_S),
        fetched_per_s=known.positive("fetched_per_s", FIRST_BYTES_PER_S),
        note=str(values.get("note", "")),
        measured=tuple(measured),
    )


def _object(text: str, origin: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"profile {origin}: not JSON: {error}") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InvalidConfig(f'profile {origin}: not a profile: "format" must be "{FORMAT}"')
    if values.get("version") != VERSION:
        raise InvalidConfig(f"profile {origin}: version {values.get('version')!r} cannot be read, only {VERSION}")
    return values


def _text(known: Fields, key: str) -> str:
    value = known.values.get(key)
    if not isinstance(value, str) or not value:
        raise known.bad(key, "must be text")
    return value


def _groups(known: Fields) -> tuple[Group, ...]:
    if known.values.get("window"):
        raise known.bad("window", "is of an older version; calibrate again")
    groups = known.values.get("groups", [])
    try:
        found = tuple(Group(*group) for group in groups)
        pages_of(1, 1, found)
    except (TypeError, InvalidConfig) as error:
        raise known.bad("groups", f"must be a list of [kind, num_pages, reach]: {error}") from error
    return found


def _cost(known: Fields) -> CostModel:
    table = known.values.get("linear")
    rule = "must be a list of [rows, seconds] with rising rows"
    if not isinstance(table, list) or not table:
        raise known.bad("linear", rule)
    linear: list[tuple[int, float]] = []
    for entry in table:
        is_pair = isinstance(entry, list) and len(entry) == 2 and type(entry[0]) is int
        if not is_pair or entry[0] <= (linear[-1][0] if linear else 0):
            raise known.bad("linear", rule)
        seconds = Fields(known.origin, {"linear": entry[1]}).number("linear")
        linear.append((entry[0], seconds))
    rates = {rate: known.number(rate, 0.0) for rate in _RATES}
    pairs, rows = (round(known.number(count, 0.0)) for count in ("max_row_pairs", "min_prompt_rows"))
    return CostModel(
        linear=tuple(linear), max_row_pairs=pairs, min_prompt_rows=rows, rungs=_rungs(known),
        pads_slots=known.flag("pads_slots", False), **rates,
    )  # fmt: skip


def _rungs(known: Fields) -> tuple[int, ...]:
    rungs = known.values.get("rungs", [])
    is_list = isinstance(rungs, list) and all(type(rung) is int and rung > 0 for rung in rungs)
    if not is_list or any(low >= high for low, high in pairwise(rungs)):
        raise known.bad("rungs", "must be a list of rising row counts")
    return tuple(rungs)
