"""website/sentences.py: what counts as a sentence, and that pages have no long ones."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "website" / "sentences.py"
LONG = "word " * 41


@pytest.fixture(scope="module")
def sentences() -> object:
    spec = importlib.util.spec_from_file_location("sentences", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("text", [LONG, f"Short. {LONG}", f"- item\n- {LONG}", f"Two lines\n{LONG}", f"> {LONG}"])
def test_a_sentence_of_more_than_40_words_is_found(sentences: object, text: str) -> None:
    [(count, found)] = sentences.long_sentences(text)
    assert count > 40 and "word" in found


@pytest.mark.parametrize(
    "text",
    [
        "word " * 40,
        f"{'word ' * 30}end. {'Word ' * 30}",
        f"- {'word ' * 30}\n- {'word ' * 30}",
        f"| {LONG} |",
        f"```text\n{LONG}\n```",
        f"Code:\n\n    {LONG}",
        f"`{LONG}` is one word",
        f"Names: {'`name`, ' * 50}`name` and `name`.",
        f"[a link](https://example.org/{LONG.replace(' ', '-')})",
    ],
)
def test_tables_code_and_short_sentences_are_not(sentences: object, text: str) -> None:
    assert list(sentences.long_sentences(text)) == []


def test_a_page_with_a_long_sentence_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{LONG}\n")
    done = subprocess.run([sys.executable, str(SCRIPT), str(page)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "page.md: 41 words: word word" in done.stderr
