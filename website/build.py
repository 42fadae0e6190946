"""Builds the docs' site from the repository's Markdown: python website/build.py [FOLDER]; build/docs without one.

Zensical makes it, strictly: a link that leads nowhere ends the build. Then every page it wrote is checked again.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from check import faults
from nav import navigation
from pages import ROOT, write_pages

WEBSITE = Path(__file__).resolve().parent
WORK = ROOT / "build" / "website"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def build(out: Path) -> list[str]:
    """What is wrong with the site; nothing where it is fine."""
    write_pages(WORK / "pages")
    shutil.copyfile(WEBSITE / "style.css", WORK / "pages" / "style.css")
    written = yaml.safe_dump({"docs_dir": "pages", "site_dir": "site", "nav": navigation()}, allow_unicode=True)
    config = WORK / "mkdocs.yml"
    config.write_text((WEBSITE / "mkdocs.yml").read_text() + written)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(config)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        return [_COLOURS.sub("", done.stdout).partition("Traceback")[0]]  # its warnings say what is wrong
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(WORK / "site", out)
    return faults(out)


def main() -> int:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "docs"
    found = build(out)
    if found:
        print(*found, sep="\n", file=sys.stderr)
        return 1
    pages = sum(1 for _ in out.rglob("*.html"))
    print(f"{pages} pages in {out}; to read them: python -m http.server --directory {out} 8080")
    return 0


if __name__ == "__main__":
    sys.exit(main())
