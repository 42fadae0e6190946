"""The files of a tuning: the YAML that `serve --config` takes, and the report as Markdown, HTML, JSON and a picture."""

import json
import textwrap
from pathlib import Path

import yaml

from chairlift.config.options.resolve import DEFAULTS
from chairlift.lab.report.frame import picture
from chairlift.lab.report.page import to_html, to_markdown, write_files
from chairlift.lab.tune.knobs import changes, with_choice
from chairlift.lab.tune.picture import charts
from chairlift.lab.tune.report import TuneReport


def yaml_of(report: TuneReport) -> str:
    """Every option that differs from its default: given by the user or a preset, or changed by tuning."""
    tuning = report.tuning
    assert tuning.pick is not None
    turned = {} if tuning.is_default_fine else changes(tuning.pick.choice, tuning.knobs)
    settings = with_choice(tuning.work.settings, turned)
    changed = {name: getattr(settings, name) for name, plain in DEFAULTS.items() if getattr(settings, name) != plain}
    changed.pop("preset", None)  # its values are there; those that were overridden by a default are not
    values = {name: str(value) if isinstance(value, Path) else value for name, value in changed.items()}
    words = report.verdict().replace("`", "")
    head = "".join(f"# {line}\n" for line in textwrap.wrap(f"{report.title}. {words}", 88, break_on_hyphens=False))
    return head + (yaml.safe_dump(values, sort_keys=False) if values else "")


def write(report: TuneReport, folder: Path) -> list[Path]:
    text = yaml_of(report)
    blocks = list(report.blocks(text))
    contents = {
        "tuned.yaml": text,
        "tune.md": to_markdown(report.title, blocks),
        "tune.html": to_html(report.title, blocks),
        "tune.svg": picture(report.title, charts(report.tuning, report.verification)),
        "tune.json": json.dumps(report.to_json(text), indent=1) + "\n",
    }
    return write_files(folder, contents)
