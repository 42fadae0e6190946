"""Which GGUF file of a repository is meant: by quantisation or by name, or by a rule where there is no word about it.

The rule is that of other programs: the only file there is, else the one in Q4_K_M. Whatever leaves a doubt is refused
in one line that lists what there is.
"""

import re
from pathlib import PurePosixPath

from chairlift.core.errors import InvalidConfig

_USUAL = "Q4_K_M"
_QUANTISATION = re.compile(
    r"(?<![A-Za-z0-9])((?:UD-)?(?:I?Q\d|TQ\d|MXFP\d|NVFP\d|BF16|FP?16|FP?32)(?:_[A-Z0-9]+)*)(?![A-Za-z0-9_])", re.I
)
_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf", re.I)
_MOST_LISTED = 40


def choose_gguf(repo: str, names: list[str], wanted: str) -> str:
    """`wanted`: a quantisation such as Q4_K_M, the name of a file, or nothing."""
    models = [name for name in names if not PurePosixPath(name).name.lower().startswith("mmproj")]  # for pictures
    found = [name for name in models if name == wanted] or _matching(models, wanted or _USUAL)
    if not wanted and len(models) == 1:
        found = models
    if len(found) == 1:
        if _PART.search(found[0]):
            raise InvalidConfig(f"{repo}: {found[0]} is one part of a split GGUF, which is not supported")
        return found[0]
    raise InvalidConfig(f"{repo}: {_doubt(repo, models, found, wanted)}")


def quantisation(name: str) -> str:
    """As the file's name has it, in capitals; empty if it says nothing."""
    found = _QUANTISATION.findall(PurePosixPath(name).stem)
    return found[-1].upper() if found else ""


def _matching(names: list[str], wanted: str) -> list[str]:
    return [name for name in names if quantisation(name) == wanted.upper()]


def _doubt(repo: str, names: list[str], found: list[str], wanted: str) -> str:
    if not names:
        return f"it has no GGUF files; leave :{wanted} out"
    parts = [name for name in found if _PART.search(name)]
    if parts and len(parts) == len(found):
        return (
            f"{wanted or _USUAL} is a split GGUF ({len(parts)} files), which is not supported; {_choices(repo, names)}"
        )
    if found:
        return (
            f"{len(found)} of its GGUF files are {wanted or _USUAL}: {_listed(found)}; name one, as {repo}:{found[0]}"
        )
    if wanted:
        return f"none of its GGUF files is {wanted}; {_choices(repo, names)}"
    return f"it has several GGUF files and none in {_USUAL}; {_choices(repo, names)}"


def _choices(repo: str, names: list[str]) -> str:
    """What can be asked for: quantisations, and names of files that do not say theirs or share it with another."""
    whole = [name for name in names if not _PART.search(name)]
    kinds = [quantisation(name) for name in whole]
    choices = [kind if kind and kinds.count(kind) == 1 else name for kind, name in zip(kinds, whole, strict=True)]
    if not choices:
        return "all of them are split"
    return f"there are {_listed(choices)}; name one, as {repo}:{choices[0]}"


def _listed(words: list[str]) -> str:
    more = len(words) - _MOST_LISTED
    return ", ".join(words[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
