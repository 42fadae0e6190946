"""Markup of HTML and SVG, element by element.

Always: text and attributes are escaped, here and nowhere else; only a `Markup` is not.
"""

import html


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, *inside: str, **attributes: str | float) -> Markup:
    """An element. `_` in an attribute's name stands for `-`, `class_` for `class`; empty ones are left out."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value != ""}
    shown = "".join(f' {key}="{_value(value)}"' for key, value in given.items())
    return Markup(f"<{name}{shown}>{joined(*inside)}</{name}>")


def joined(*parts: str) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else html.escape(part) for part in parts))


def _value(value: str | float) -> str:
    return html.escape(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
