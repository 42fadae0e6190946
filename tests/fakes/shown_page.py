"""A page of the docs whose examples are run as they are shown."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
URL = "http://127.0.0.1:8000"  # of the server, as pages show it


class ShownPage:
    def __init__(self, name: str) -> None:
        self._path = DOCS / name
        self.text = self._path.read_text()

    def section(self, heading: str, language: str = "python") -> str:
        [text] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", self.text, re.MULTILINE | re.DOTALL)
        return "\n".join(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL))

    def opening(self, url: str) -> dict[str, Any]:
        """The names that the first example leaves, run against a server."""
        code = re.findall(r"```python\n(.*?)```", self.text, re.DOTALL)[0]
        assert URL in code
        return self.run(code.replace(URL, url), {})

    def run(self, code: str, names: dict[str, Any]) -> dict[str, Any]:
        exec(compile(code, str(self._path), "exec"), names)
        return names
