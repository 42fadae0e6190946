"""Installed versions and the embedded model, as text to show."""

import platform
from importlib import metadata

from chairlift.config.source import EMBEDDED_NAME, embedded_path
from chairlift.config.version import VERSION
from chairlift.core.errors import InvalidConfig

_PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "gguf", "msgspec", "pyzmq", "starlette", "uvicorn")


def version_facts() -> dict[str, str]:
    own = {
        "chairlift": VERSION,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }
    return own | {name: _version(name) for name in _PACKAGES}


def model_facts() -> dict[str, str]:
    try:
        path = embedded_path()
    except InvalidConfig as error:
        return {"embedded": str(error)}
    return {"embedded": f"{EMBEDDED_NAME}, {path.stat().st_size / 2**20:.0f} MiB", "file": str(path)}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
