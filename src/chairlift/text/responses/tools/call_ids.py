"""Ids of calls, in the form that a family's chat template takes back."""

import secrets
import string

from chairlift.text.responses.templates.template import ResponseTemplate

_LETTERS = string.ascii_letters + string.digits


def new_call_id(template: ResponseTemplate) -> str:
    if template.ids == "nine":
        return _random(9)
    return f"call_{_random(24)}"


def _random(num: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(num))
