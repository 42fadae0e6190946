"""Whether MindSpore can be used, found without importing it: that takes seconds."""

from importlib.metadata import PackageNotFoundError, version

from chairlift.core.errors import InvalidConfig

_MAJOR = "2"


def check_installed(device: str) -> None:
    """Refuses the device where MindSpore is missing, or is not the one its operations were written for."""
    if why_not := why_not_mindspore():
        raise InvalidConfig(f"device {device} {why_not}: pip install 'chairlift[mindspore]'")


def why_not_mindspore() -> str:
    """In words that follow the device; empty where it can be used."""
    try:
        found = version("mindspore")
    except PackageNotFoundError:
        return "needs mindspore"
    return "" if found.split(".")[0] == _MAJOR else f"needs mindspore {_MAJOR}, and {found} is installed"
