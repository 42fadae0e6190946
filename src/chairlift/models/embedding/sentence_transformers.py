"""The files of sentence-transformers beside a model: which modules follow it, and what is done to texts before.

Always: a module or a way to pool that is not built is refused by name, and so is one whose settings change the vectors
and are not understood; other keys are named in a warning.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from chairlift.config.fields import Fields
from chairlift.core.errors import InvalidConfig
from chairlift.models.embedding.declared import AnswerTokens, EmbeddingConfig, Pooling
from chairlift.models.files.hf import read_json

MODULES = "modules.json"
_POOLINGS: dict[str, Pooling] = {
    "cls": "cls", "mean": "mean", "max": "max", "lasttoken": "last", "mean_sqrt_len_tokens": "mean_sqrt_len",
}  # fmt: skip
_OLDER = "pooling_mode_"
_OLDER_NAMES = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "weightedmean_tokens": "weightedmean"}
_BUILT = ("Transformer", "Pooling", "Normalize", "LogitScore")
# Of newer files: they tell that texts come in and token vectors go out, as they do here.
_TOLD = (
    "transformer_task", "modality_config", "module_output_name", "unpad_inputs", "__version__", "model_type",
    "query_prompt_name", "document_prompt_name", "modalities", "processing_kwargs",
)  # fmt: skip


@dataclass(slots=True)
class Found:
    """What the files say; None: nothing."""

    pooling: Pooling | None = None
    is_normalized: bool = False
    answer: AnswerTokens | None = None
    max_len: int | None = None
    is_lower_case: bool = False
    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt: str | None = None
    similarity: str = "cosine"
    warnings: list[str] = field(default_factory=list)

    def into(self, config: EmbeddingConfig) -> dict[str, Any]:
        """Changes of what a model is without these files."""
        changes: dict[str, Any] = {"is_lower_case": self.is_lower_case, "prompts": self.prompts}
        changes |= {"default_prompt": self.default_prompt, "similarity": self.similarity}
        if self.pooling is not None:
            changes |= {"pooling": self.pooling, "is_normalized": self.is_normalized}
        if self.max_len is not None:
            changes["max_len"] = min(self.max_len, config.max_len)
        return changes


def read_modules(folder: Path) -> Found | None:
    """None: the model has no such files."""
    if not (folder / MODULES).is_file():
        return None
    found = Found()
    for index, (kind, path) in enumerate(_modules(folder / MODULES)):
        if kind not in _BUILT or (kind == "Transformer") != (index == 0):
            raise InvalidConfig(f"{folder / MODULES}: module {kind} is not supported; supported: {', '.join(_BUILT)}")
        if kind == "Pooling":
            found.pooling = _pooling(_fields(folder / path / "config.json"))
        elif kind == "Normalize":
            found.is_normalized = True
        elif kind == "LogitScore":
            found.answer = _answer(_fields(folder / path / "config.json"))
    for settings in sorted(folder.glob("sentence_*_config.json")):
        _read_transformer(_fields(settings), found)
    settings = folder / "config_sentence_transformers.json"
    if settings.is_file():
        _read_settings(_fields(settings), found)
    return found


def _modules(path: Path) -> list[tuple[str, str]]:
    """The kind and the folder of each, in order."""
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        found = [(str(each["type"]).rpartition(".")[2], str(each.get("path", ""))) for each in listed]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidConfig(f"{path}: not a list of modules: {error}") from error
    strange = next((where for _, where in found if where.startswith("/") or ".." in where), None)
    if strange is not None:
        raise InvalidConfig(f"{path}: path {strange[:80]!r} leaves the folder")
    return found


def _pooling(config: Fields) -> Pooling:
    given = config.get("pooling_mode")
    older = {key: config.get(key) for key in config.values if key.startswith(_OLDER)}
    if given is None:
        names = [key.removeprefix(_OLDER) for key, is_on in older.items() if is_on is True] or ["mean_tokens"]
        given = [_OLDER_NAMES.get(name, name) for name in names]
    modes = given if isinstance(given, list) else [given]
    if len(modes) != 1 or not isinstance(modes[0], str) or modes[0] not in _POOLINGS:
        ways = ", ".join(_POOLINGS)
        shown = " and ".join(map(str, modes))[:80]
        raise InvalidConfig(f"{config.origin}: pooling_mode {shown} is not supported; supported: one of {ways}")
    if not config.flag("include_prompt", True):
        raise config.bad("include_prompt", "must be true: vectors without their prompt's tokens are not supported")
    for key in ("word_embedding_dimension", "embedding_dimension"):
        config.get(key)
    if config.unread:
        raise InvalidConfig(f"{config.origin}: {config.unread[0]} is not supported")
    return _POOLINGS[modes[0]]


def _answer(config: Fields) -> AnswerTokens:
    true, false = config.get("true_token_id"), config.get("false_token_id")
    if type(true) is not int or type(false) is not int or true < 0 or false < 0:
        raise config.bad("true_token_id", "and false_token_id must be token ids")
    return AnswerTokens(true=true, false=false)


def _read_transformer(config: Fields, found: Found) -> None:
    if config.get("max_seq_length") is not None:
        found.max_len = config.size("max_seq_length")
    found.is_lower_case = config.flag("do_lower_case", False)
    found.warnings += _ignored(config)


def _read_settings(config: Fields, found: Found) -> None:
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise config.bad("prompts", "must be texts by name")
    found.prompts = tuple((str(name), text) for name, text in prompts.items())
    default = config.get("default_prompt_name")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise config.bad("default_prompt_name", "must be one of the prompts")
    found.default_prompt = default
    similarity = config.get("similarity_fn_name") or "cosine"
    if similarity not in ("cosine", "dot"):
        raise config.bad("similarity_fn_name", "must be cosine or dot")
    found.similarity = cast(str, similarity)
    found.warnings += _ignored(config)


def _ignored(config: Fields) -> list[str]:
    unknown = [key for key in config.unread if key not in _TOLD]
    return [f"{config.origin}: ignored keys that are not known: {', '.join(unknown)}"] if unknown else []


def _fields(path: Path) -> Fields:
    return Fields(str(path), read_json(path))
