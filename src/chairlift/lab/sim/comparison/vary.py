"""The variants of a comparison: every combination of the values of `--vary NAME=VALUE,VALUE`.

A value may be a rule with parameters of its own (`policy=fcfs,fair-share:prompt=1,output=3`): a piece that is itself
`key=value` belongs to the rule before it. So does a second role (`roles=none,prefill:1,decode:3`).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chairlift.config.options.resolve import OPTIONS, resolve
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig

ARRIVALS = "arrivals"  # not a setting of the engine
MAX_VARIANTS = 1000


@dataclass(frozen=True, slots=True)
class Variant:
    varied: Mapping[str, str]  # in the given order
    settings: Settings
    arrivals: str

    @property
    def label(self) -> str:
        return ", ".join(self.varied.values()) or "defaults"


def parse_vary(given: Sequence[str]) -> dict[str, list[str]]:
    known = [option.name for option in OPTIONS if option.group in ("engine", "replicas")] + [ARRIVALS]
    varied: dict[str, list[str]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if name not in known or name in varied:
            shown = ", ".join(option.replace("_", "-") for option in known)
            raise InvalidConfig(f"--vary {text}: give NAME=VALUE,VALUE once for each of: {shown}")
        varied[name] = _split(values)
        if not equals or not all(varied[name]):
            raise InvalidConfig(f"--vary {text}: must list values, as in {name.replace('_', '-')}=VALUE,VALUE")
        if name == "replicas" and "0" in varied[name]:  # a server may have none of its own, a simulation may not
            raise InvalidConfig(f"--vary {text}: nothing is computed by 0 replicas; give 1 or more")
    if math.prod(map(len, varied.values())) > MAX_VARIANTS:
        raise InvalidConfig(f"--vary asks for more than {MAX_VARIANTS} runs")
    return varied


def _split(values: str) -> list[str]:
    found: list[str] = []
    for piece in values.split(","):
        is_parameter = "=" in piece and ":" not in piece.partition("=")[0]
        if (is_parameter or piece.strip().startswith("decode:")) and found and ":" in found[-1]:
            found[-1] += f",{piece.strip()}"
        else:
            found.append(piece.strip())
    return found


def variants(
    varied: Mapping[str, Sequence[str]],
    arrivals: str,
    flags: Mapping[str, object],
    config: Path | None,
    environment: Mapping[str, str],
) -> list[Variant]:
    """Every combination, the last name changing fastest; each is checked before any is run."""
    found = []
    for values in itertools.product(*varied.values()):
        chosen = dict(zip(varied, values, strict=True))
        changes = {name: value for name, value in chosen.items() if name != ARRIVALS}
        settings = resolve({**flags, **changes}, config, environment)
        found.append(Variant(chosen, settings, chosen.get(ARRIVALS, arrivals)))
    return found
