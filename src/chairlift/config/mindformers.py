"""A MindFormers model file (YAML or JSON) as it is: its document, its section on the model, the weights it names.

model: {model_config: {type: LlamaConfig, num_layers: 32, ...}}      or model_config alone, or its keys alone
"""

from pathlib import Path
from typing import Any

import yaml

from chairlift.core.errors import InvalidConfig

_MAX_FILE_BYTES = 4 << 20


def read_document(path: Path) -> dict[str, Any]:
    """The file as it is."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise InvalidConfig(f"{path}: too large for a model's configuration")
        document = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    return document if isinstance(document, dict) else {}


def model_section(document: dict[str, Any]) -> dict[str, Any] | None:
    """What the file says of the model; None: nothing."""
    outer = document.get("model")
    for place in (outer if isinstance(outer, dict) else {}, document):
        if isinstance(found := place.get("model_config"), dict):
            return found if "num_layers" in found else None
    return document if {"num_layers", "num_heads"} <= document.keys() else None


def named_checkpoint(path: Path) -> Path | None:
    """The weights that the file names, where they are here."""
    document = read_document(path)
    named = (document.get("load_checkpoint"), (model_section(document) or {}).get("checkpoint_name_or_path"))
    for name in named:
        if isinstance(name, str) and name:
            for found in (Path(name).expanduser(), path.parent / name):
                if found.exists():
                    return found
    return None
