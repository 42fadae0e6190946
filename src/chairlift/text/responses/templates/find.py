"""Which family a model's answers belong to: by the chat template's own literals, or by name."""

import logging
from typing import Any

from chairlift.core.errors import InvalidConfig
from chairlift.text.responses.templates.declared import NotExpressible, declared_template
from chairlift.text.responses.templates.families import BY_NAME, FAMILIES, GENERIC
from chairlift.text.responses.templates.template import ResponseTemplate
from chairlift.text.tokenizer import Tokenizer

_log = logging.getLogger(__name__)


def find_template(
    chat_template: str | None, *, name: str | None = None, declared: dict[str, Any] | None = None
) -> ResponseTemplate | None:
    """`name`: of a family, which then counts alone. `declared`: the model's own `response_template`. None: the model
    has no chat template, so it writes no turns."""
    if name is not None:
        return named_template(name)
    if chat_template is None:
        return None
    if declared is not None:
        try:
            return declared_template(declared)
        except NotExpressible as error:
            _log.warning("the model's own response_template is not used: %s", error)
    return next((family.template for family in FAMILIES if family.fits(chat_template)), GENERIC)


def named_template(name: str) -> ResponseTemplate:
    if name not in BY_NAME:
        known = ", ".join(sorted(BY_NAME))
        raise InvalidConfig(
            f"--tool-format {name}: unknown; leave it out, and the chat template tells, or give one of {known}"
        )
    return BY_NAME[name]


def template_of(tokenizer: Tokenizer, name: str | None = None) -> ResponseTemplate | None:
    """Of a loaded model; `name`: of a family, which then counts alone."""
    return find_template(tokenizer.chat_template, name=name, declared=tokenizer.response_template)


def special_texts(tokenizer: Tokenizer) -> dict[str, int]:
    """The special tokens by their texts, as reader and grammar want them."""
    return {tokenizer.piece(token): token for token in sorted(tokenizer.special_ids)}


def begins_in_reasoning(template: ResponseTemplate, prompt_end: str) -> bool:
    """Whether a prompt, given by its last characters with special tokens shown, leaves reasoning open."""
    return template.reasoning is not None and prompt_end.rstrip().endswith(template.reasoning.open)
