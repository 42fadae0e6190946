"""The files of a tuning: the YAML that `serve --config` takes, and the report as Markdown, HTML, JSON and a picture."""

import json
import textwrap
from pathlib import Path
from typing import Any

import yaml

from chairlift.config.options import DEFAULTS
from chairlift.config.settings import Settings
from chairlift.tune.knobs import changes, with_choice
from chairlift.tune.page import to_html, to_markdown
from chairlift.tune.picture import to_png
from chairlift.tune.report import Found


def yaml_of(found: Found) -> str:
    """Every option that is not as it comes: what the user gave, and what tuning changed."""
    tuning = found.tuning
    assert tuning.pick is not None
    turned = {} if tuning.is_default_fine else changes(tuning.pick.choice, tuning.knobs)
    values = _given(with_choice(tuning.work.settings, turned))
    words = found.verdict().replace("`", "")
    head = "".join(f"# {line}\n" for line in textwrap.wrap(f"{found.title}. {words}", 88, break_on_hyphens=False))
    return head + (yaml.safe_dump(values, sort_keys=False) if values else "")


def write(found: Found, folder: Path) -> list[Path]:
    text = yaml_of(found)
    png = to_png(found.tuning, found.verification, found.title)
    blocks = list(found.blocks(text, png))
    contents = {
        "tuned.yaml": text.encode(),
        "tune.md": to_markdown(found.title, blocks).encode(),
        "tune.html": to_html(found.title, blocks).encode(),
        "tune.png": png,
        "tune.json": (json.dumps(found.to_json(text), indent=1) + "\n").encode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, content in contents.items():
        paths.append(folder / name)
        paths[-1].write_bytes(content)
    return paths


def _given(settings: Settings) -> dict[str, Any]:
    values = {name: getattr(settings, name) for name, default in DEFAULTS.items() if getattr(settings, name) != default}
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
