"""What is said of a model's tokens, by `--tokenizer` and by an llm-serving file, as far as it agrees with the model.

Always: a tokenizer that does not fit is not used. One named by option is refused. A file was written for one model and
may be used with another: its tokenizer, end token and prompt template are dropped where they do not fit, each with a
warning; the embedded default always has its own tokenizer.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from chairlift.config.settings import LlmServing, Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.source import Source
from chairlift.models.spec import ModelConfig
from chairlift.text.find import load_tokenizer, why_unfit
from chairlift.text.tokenizer import Tokenizer

_Load = Callable[[Path | None], Tokenizer]  # None: the model's own
_MARK = re.compile(r"<(?!s>)[^<>]+>")  # of a prompt template; <s> is in most vocabularies


def agreed(settings: Settings, source: Source, config: ModelConfig) -> tuple[Settings, ModelConfig]:
    """The settings with the tokenizer to use, and the model with the end token and with warnings of what is dropped."""
    warnings: list[str] = []
    load = cache(partial(load_tokenizer, source))  # a large one takes half a second
    path = settings.tokenizer
    if path is not None:
        if why := _why_unfit(path, load, config):
            raise InvalidConfig(
                f"--tokenizer {path} does not fit {source.name}: {why}; leave --tokenizer out to use the model's own, "
                "or name the model it belongs to with --model"
            )
    elif settings.compat.vocab_file is not None:
        path, dropped = _file_tokenizer(settings.compat.vocab_file, source, load, config)
        warnings += dropped

    compat, eos_ids = replace(settings.compat, vocab_file=None), config.eos_ids
    if compat.end_token is not None and compat.end_token not in eos_ids:
        if _can_end(load(path), compat.end_token):
            eos_ids = (*eos_ids, compat.end_token)
        else:
            warnings.append(_no_end(load(path), compat.end_token))
            compat = replace(compat, end_token=None)
    marks = _MARK.findall(compat.prompt_template)
    if marks and not any(map(load(path).has_token, marks)):
        warnings.append(_no_marks(compat, marks))
        compat = replace(compat, prompt_template="{}")
    config = replace(config, eos_ids=eos_ids, warnings=(*config.warnings, *warnings))
    return replace(settings, tokenizer=path, compat=compat), config


def _why_unfit(path: Path, load: _Load, config: ModelConfig) -> str:
    try:
        own = load(None)
    except InvalidConfig:  # it has none that can be read
        own = None
    return why_unfit(load(path), config, own)


def _file_tokenizer(path: Path, source: Source, load: _Load, config: ModelConfig) -> tuple[Path | None, list[str]]:
    """None: the model's own, and a warning that says why."""
    if not path.is_file():
        return None, [f"tokenizer.vocab_file {path} does not exist: using the model's own tokenizer"]
    if source.is_embedded:
        return None, [f"tokenizer.vocab_file {path} is not used: the embedded {source.name} has its own tokenizer"]
    why = _why_unfit(path, load, config)
    line = f"tokenizer.vocab_file {path} is not used: it does not fit {source.name}, whose own tokenizer is used: {why}"
    return (None, [line]) if why else (path, [])


def _can_end(tokenizer: Tokenizer, token: int) -> bool:
    return token == tokenizer.eos_id or (token in tokenizer.special_ids and token != tokenizer.bos_id)


def _no_end(tokenizer: Tokenizer, token: int) -> str:
    return f"model_config.end_token {token} is not used: in the model's tokenizer it is {tokenizer.piece(token)!r}"


def _no_marks(compat: LlmServing, marks: list[str]) -> str:
    return (
        f"the prompt template of model_config.model_name {compat.model_name} is not used: "
        f"the model's tokenizer has no {', '.join(marks)}"
    )
