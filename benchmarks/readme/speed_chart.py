"""Draws the README's chart from docs/results/speed.yaml: ours beside the others', each figure from a page of results.

    python benchmarks/readme/speed_chart.py [--out docs/pictures/speed.svg]

A group of bars is one measurement; its longest bar is the fastest. A figure that its source does not have is refused.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from chairlift.lab.report.markup import Markup, tag

_RESULTS = Path(__file__).parents[2] / "docs" / "results"
_OUT = _RESULTS.parent / "pictures" / "speed.svg"
WIDTH, LEFT, RIGHT = 880, 330, 190  # of it for what was measured, and for the figures
HEAD, BAR, GAP, BETWEEN = 44, 18, 4, 18
_STYLE = """
svg { --ink: #1d2530; --faint: #626d7a; --ours: #2b6cb0; --other: #b6bec8 }
@media (prefers-color-scheme: dark) { svg { --ink: #e3e8ee; --faint: #9aa6b2; --ours: #63a4e8; --other: #56616d } }
text { font: 13px system-ui, sans-serif; fill: var(--faint) }
.what { font-weight: 600; fill: var(--ink) } .ours { fill: var(--ours) } .other { fill: var(--other) }
text.own { font-weight: 600; fill: var(--ink) } .title { font-size: 15px; font-weight: 600; fill: var(--ink) }
"""


def unfounded(group: dict[str, Any]) -> list[str]:
    """Figures that the source does not have."""
    text = (_RESULTS / group["source"]).read_text()
    return [figure for figure in group["bars"].values() if figure not in text]


def speeds(group: dict[str, Any]) -> dict[str, float]:
    """By name, 1 is the fastest."""
    found = {name: float(figure) for name, figure in group["bars"].items()}
    if group.get("less"):
        found = {name: 1 / value for name, value in found.items()}
    return {name: value / max(found.values()) for name, value in found.items()}


def drawn(groups: list[dict[str, Any]]) -> str:
    inside, y = [tag("text", "Longer is faster", class_="title", x=LEFT, y=24)], HEAD
    for group in groups:
        inside += [
            tag("text", group["what"], class_="what", x=LEFT - 14, y=y + 13, text_anchor="end"),
            tag("text", group["where"], x=LEFT - 14, y=y + 13 + BAR, text_anchor="end"),
        ]
        for name, share in speeds(group).items():
            length = share * (WIDTH - LEFT - RIGHT)
            is_own = name == "chairlift"
            value = f"{name}  {group['bars'][name]} {group['unit']}"
            inside += [
                tag("rect", class_="ours" if is_own else "other", x=LEFT, y=y, width=length, height=BAR, rx=3),
                tag("text", value, class_="own" if is_own else "", x=LEFT + length + 8, y=y + 13),
            ]
            y += BAR + GAP
        y += BETWEEN
    style = tag("style", Markup(_STYLE))
    size: dict[str, str | float] = {"width": WIDTH, "height": y, "viewBox": f"0 0 {WIDTH} {y}"}
    label = "chairlift beside vLLM, openvino-genai and llama.cpp"
    return tag("svg", style, *inside, xmlns="http://www.w3.org/2000/svg", role="img", aria_label=label, **size) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=_OUT)
    out: Path = parser.parse_args().out
    groups = yaml.safe_load((_RESULTS / "speed.yaml").read_text())
    for group in groups:
        if missing := unfounded(group):
            sys.exit(f"{group['source']} does not have {', '.join(missing)} of “{group['what']}”")
    out.write_text(drawn(groups))
    print(out)


if __name__ == "__main__":
    main()
