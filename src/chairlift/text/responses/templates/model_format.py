"""How a loaded model writes its answers: its family, and what its vocabulary and chat template tell of the marks."""

from collections.abc import Mapping
from dataclasses import dataclass

from chairlift.text.responses.templates.families import REASONING
from chairlift.text.responses.templates.find import special_texts, template_of
from chairlift.text.responses.templates.template import ResponseTemplate
from chairlift.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ModelFormat:
    template: ResponseTemplate
    can_reason: bool  # the chat template or the vocabulary holds the marks of reasoning
    special_texts: frozenset[str]  # of all special tokens
    special_marks: Mapping[str, int]  # marks that are special tokens, which a text shows only where it is asked to

    @property
    def name(self) -> str:
        return self.template.name


def format_of(tokenizer: Tokenizer, name: str | None = None) -> ModelFormat | None:
    """`name`: of a family, which then counts alone. None: the model has no chat template, so it writes no turns."""
    template = template_of(tokenizer, name)
    if template is None or tokenizer.chat_template is None:
        return None
    special = special_texts(tokenizer)
    marks = {text: token for text, token in special.items() if text and any(text in mark for mark in template.marks)}
    return ModelFormat(template, _can_reason(template, tokenizer), frozenset(filter(None, special)), marks)


def _can_reason(template: ResponseTemplate, tokenizer: Tokenizer) -> bool:
    if template.reasoning is None:
        return template.channels is not None
    marks = (template.reasoning.open, template.reasoning.close)
    in_prompts = any(mark in (tokenizer.chat_template or "") for mark in marks)
    return template is REASONING or in_prompts or all(map(tokenizer.has_token, marks))
