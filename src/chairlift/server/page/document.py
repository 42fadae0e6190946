"""The documents at `/` and `/docs`: each one file with styles and scripts inside, and no data.

Always: a content security policy lets these styles and scripts run and nothing else, nothing comes from elsewhere, and
only the sanitiser may make markup of text.
"""

import base64
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Page:
    """Names of files under `static`; `scripts` share one scope."""

    html: str
    styles: tuple[str, ...]
    scripts: tuple[str, ...]
    vendored: tuple[str, ...] = ()


_NO_ONE = "'none'"
_SHARED = ("shared/elements", "shared/connection", "shared/theme")
LIVE = Page(
    "live/page.html",
    ("shared/style", "live/style", "chat/style"),
    (
        *_SHARED,
        *(f"live/{name}" for name in ("feed", "state", "draw", "chart", "charts", "tiles", "fleet", "blocks")),
        *(f"live/{name}" for name in ("timeline", "totals", "settings")),
        *(f"chat/{name}" for name in ("markdown", "json", "tools", "options", "turns", "view", "calls", "ask", "chat")),
        "live/main",
    ),
    ("vendor/marked", "vendor/dompurify"),
)
DOCS = Page(
    "docs/page.html",
    ("shared/style", "docs/style"),
    (*_SHARED, "docs/schema", "docs/operation", "docs/try", "docs/main"),
)


@cache
def document(page: Page) -> tuple[bytes, dict[str, str]]:
    """Its HTML and its headers."""
    style = "".join(map(_text, (f"{name}.css" for name in page.styles)))
    own = "\n".join(_text(f"{name}.js") for name in page.scripts)
    scripts = [*(_text(f"{name}.js") for name in page.vendored), f'"use strict";\n(() => {{\n{own}}})();\n']
    html = _text(page.html).replace("/*style*/", style).replace("<!--key-->\n", _text("shared/key.html"))
    html = html.replace("<!--scripts-->", "\n".join(f"<script>{script}</script>" for script in scripts))
    hashes = " ".join(map(_hash, scripts))
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src {_hash(style)}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        f"require-trusted-types-for 'script'; trusted-types {'dompurify' if page.vendored else _NO_ONE}"
    )
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept",
    }
    return html.encode(), headers


def _text(name: str) -> str:
    return (files(__package__) / "static" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"
