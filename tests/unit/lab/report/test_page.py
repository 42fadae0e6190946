from pathlib import Path

from chairlift.lab.report.chart import bars
from chairlift.lab.report.markup import tag
from chairlift.lab.report.page import (
    Charts,
    Code,
    Element,
    Heading,
    Paragraph,
    Table,
    Tiles,
    to_html,
    to_markdown,
    write_files,
)

BLOCKS: list[Element] = [
    Heading("H & I"),
    Paragraph("a `<b>` & c", "warn"),
    Table(("x", "y"), [("1 | 2", "a long row of words, not a number")]),
    Tiles([("5 < 6", "most")]),
    Code("# <hi>"),
    Charts([bars("bars", ["n"], {"": [1.0]})], "charts.svg", "the bars"),
]


def test_a_page_escapes_what_it_shows() -> None:
    page = to_html("a <title>", BLOCKS)
    assert "<h1>a &lt;title&gt;</h1>" in page
    assert '<p class="warn">a <code>&lt;b&gt;</code> &amp; c</p>' in page
    assert "<pre># &lt;hi&gt;</pre>" in page
    assert "<b>5 &lt; 6</b><span>most</span>" in page
    assert tag("a", "<", class_='"') == '<a class="&quot;">&lt;</a>'


def test_a_page_needs_no_other_file_and_suits_light_and_dark() -> None:
    page = to_html("t", BLOCKS)
    assert page.count("<svg") == 1
    assert "prefers-color-scheme: dark" in page
    assert "http" not in page and "src=" not in page


def test_columns_of_words_stand_on_the_left() -> None:
    page = to_html("t", BLOCKS)
    assert "<th>x</th>" in page and '<th class="words">y</th>' in page


def test_markdown_shows_the_same_beside_a_picture() -> None:
    text = to_markdown("t", BLOCKS)
    assert text.startswith("# t\n\n## H & I\n\na `<b>` & c\n")
    assert "| 1 \\| 2 |" in text
    assert "- most: 5 < 6" in text
    assert "    # <hi>" in text
    assert "![the bars](charts.svg)" in text


def test_files_go_into_a_folder_that_is_made(tmp_path: Path) -> None:
    paths = write_files(tmp_path / "new" / "folder", {"a.txt": "ä", "b.txt": ""})
    assert [path.name for path in paths] == ["a.txt", "b.txt"]
    assert paths[0].read_bytes() == "ä".encode()
