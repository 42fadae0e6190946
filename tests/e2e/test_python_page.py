"""Runs what docs/python.md shows, and examples/like_vllm.py, on the embedded model."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.encoders import write_encoder
from fakes.shown_page import DOCS, ShownPage

pytestmark = pytest.mark.nightly
PAGE = ShownPage("python.md")


def test_every_snippet_in_order(tmp_path: Path) -> None:
    names: dict[str, Any] = {"EMBEDDER": str(write_encoder(tmp_path / "encoder", has_head=False))}
    sections = [heading for heading in re.findall("^## (.+)$", PAGE.text, re.MULTILINE) if PAGE.section(heading)]
    for heading in sections:
        PAGE.run(PAGE.section(heading), names)
    assert len(sections) == 5
    assert names["outputs"][0].outputs[0].text.startswith(" Paris")
    assert [len(each.outputs[0].token_ids) for each in names["several"]] == [8]
    assert len(names["texts"]) == 2 and all(names["texts"]) and names["pieces"]
    assert len(names["counted"]) == 8
    assert len(names["told_texts"]) == 3 and all(names["told_texts"])
    assert names["matrix"].shape == (2, len(names["first"])) and len(names["scores"]) == 2


@pytest.mark.nightly
def test_a_script_in_the_shapes_of_vllm() -> None:
    example = DOCS.parent / "examples" / "like_vllm.py"
    flags = ["--max-num-seqs", "4", "--enforce-eager", "--max-model-len", "512", "--max-tokens", "6"]
    done = subprocess.run([sys.executable, example, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["text 1.0", "text 2.0", "tokens 3.0", "chat 4.0", "chat 5.0"]
    assert re.fullmatch(r"text 1.0: ' Paris.*' \((stop|length)\)", lines[0])
    assert lines[3].partition(": ")[2] == lines[4].partition(": ")[2]
