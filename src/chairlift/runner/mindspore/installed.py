"""Whether MindSpore can be used, found without importing it: that takes seconds."""

from importlib.metadata import PackageNotFoundError, version

from chairlift.config.extras import check_extra
from chairlift.core.errors import InvalidConfig

_MAJOR = "2"


def check_installed(device: str) -> None:
    """Refuses the device where MindSpore is missing, or another than its operations were written for."""
    check_extra(f"device {device}", "mindspore")
    try:
        found = version("mindspore")
    except PackageNotFoundError:  # a folder of that name
        found = "of no version"
    if found.split(".")[0] != _MAJOR:
        raise InvalidConfig(
            f"device {device} needs MindSpore {_MAJOR}, and {found} is installed: pip install 'chairlift[mindspore]'"
        )
