"""The page at `/`: one document with style and script inside and no data. A content security policy forbids anything
from elsewhere."""

import base64
from functools import cache
from hashlib import sha256
from importlib.resources import files

SCRIPTS = ("feed", "state", "draw", "chart", "tiles", "fleet", "blocks", "timeline", "tools", "answer", "chat", "main")


@cache
def document() -> tuple[bytes, dict[str, str]]:
    """Its HTML and its headers."""
    static = files(__package__) / "static"
    style = (static / "style.css").read_text("utf-8")
    parts = "\n".join((static / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}}})();\n'
    html = (static / "index.html").read_text("utf-8")
    html = html.replace("/*style*/", style).replace("/*script*/", script)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept",
    }
    return html.encode(), headers


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(sha256(text.encode()).digest()).decode()
