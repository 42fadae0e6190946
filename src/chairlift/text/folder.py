"""Loads the tokenizer of a Hugging Face folder: tokenizer.json, or tokenizer.model alone.

tokenizer_config.json (then special_tokens_map.json) names the first and last tokens of a text and whether the first is
added; chat_template.jinja precedes one in tokenizer_config.json. An unreadable file is refused, a missing one is not.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as CoreTokenizer

from chairlift.core.errors import InvalidConfig
from chairlift.text.panics import caught
from chairlift.text.sentencepiece_model import PieceModel, read_sentencepiece
from chairlift.text.spm import build_spm
from chairlift.text.tokenizer import Tokenizer

_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def folder_tokenizer(folder: Path) -> Tokenizer:
    for name, load in (("tokenizer.json", json_tokenizer), ("tokenizer.model", model_tokenizer)):
        if (folder / name).is_file():
            return load(folder / name)
    raise InvalidConfig(f"{folder}: no tokenizer found; it needs tokenizer.json or tokenizer.model")


def json_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a tokenizer.json, with the settings beside it."""
    try:
        with caught():
            core = CoreTokenizer.from_file(str(path))
    except Exception as error:  # the library raises the bare class
        raise InvalidConfig(f"{path}: not a tokenizer: {error}") from error
    return _finish(core, path.parent, None, None)


def model_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a SentencePiece file, with the settings beside it."""
    pieces = read_sentencepiece(path)
    try:
        core = build_spm(pieces)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from error
    return _finish(core, path.parent, pieces, True)


def folder_chat_template(folder: Path) -> str | None:
    jinja = folder / "chat_template.jinja"
    if jinja.is_file():
        return _text(jinja)
    template = _json(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[-1].get("template") if named else None
    return template if isinstance(template, str) else None


def _finish(core: CoreTokenizer, folder: Path, pieces: PieceModel | None, add_bos: bool | None) -> Tokenizer:
    config = _json(folder / "tokenizer_config.json")
    tokens = {} if pieces is None else _own_tokens(pieces)
    tokens |= _role_tokens(_json(folder / "special_tokens_map.json"))
    tokens |= _role_tokens(config)
    _add_listed(core, folder, config)
    _mark_special(core, tokens)
    configured = config.get("add_bos_token")
    return Tokenizer(
        core,
        bos_id=core.token_to_id(tokens["bos_token"]) if "bos_token" in tokens else None,
        eos_id=core.token_to_id(tokens["eos_token"]) if "eos_token" in tokens else None,
        add_bos=configured if isinstance(configured, bool) else add_bos,
        chat_template=folder_chat_template(folder),
        template_tokens=tokens,
        response_template=response if isinstance(response := config.get("response_template"), dict) else None,
    )


def _own_tokens(pieces: PieceModel) -> dict[str, str]:
    ids = {"bos_token": pieces.bos_id, "eos_token": pieces.eos_id, "unk_token": pieces.unk_id}
    return {role: pieces.pieces[token_id] for role, token_id in ids.items() if token_id is not None}


def _role_tokens(config: dict[str, Any]) -> dict[str, str]:
    """The tokens with roles in a settings file; each is a string or a map with its text under "content"."""
    values = {role: config.get(role) for role in _ROLES}
    texts = {role: value.get("content") if isinstance(value, dict) else value for role, value in values.items()}
    return {role: text for role, text in texts.items() if isinstance(text, str)}


def _add_listed(core: CoreTokenizer, folder: Path, config: dict[str, Any]) -> None:
    """Adds tokens of the settings that the vocabulary file lacks, in the order of their ids."""
    listed: dict[int, AddedToken] = {}
    try:
        for key, entry in config.get("added_tokens_decoder", {}).items():
            flags = {name: bool(entry[name]) for name in ("lstrip", "rstrip", "single_word") if name in entry}
            special = bool(entry.get("special", False))
            normalized = bool(entry.get("normalized", not special))
            listed[int(key)] = AddedToken(entry["content"], special=special, normalized=normalized, **flags)
        for text, token_id in _json(folder / "added_tokens.json").items():
            listed.setdefault(int(token_id), AddedToken(text, normalized=False))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidConfig(f"{folder}: the list of added tokens cannot be understood: {error}") from error
    known = core.get_added_tokens_decoder()
    for token_id, token in sorted(listed.items()):
        if token_id not in known:
            core.add_special_tokens([token]) if token.special else core.add_tokens([token])
            if core.token_to_id(token.content) != token_id:
                raise InvalidConfig(f"{folder}: added token {token.content!r} does not get its id {token_id}")


def _mark_special(core: CoreTokenizer, tokens: dict[str, str]) -> None:
    # Only tokens the vocabulary has: a new id would be one the model has no row for.
    marked = {token.content for token in core.get_added_tokens_decoder().values() if token.special}
    missing = [text for text in dict.fromkeys(tokens.values()) if text not in marked]
    present = [text for text in missing if core.token_to_id(text) is not None]
    core.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in present])


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidConfig(f"{path}: must hold a JSON object")
    return value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: cannot be read: {error}") from error
