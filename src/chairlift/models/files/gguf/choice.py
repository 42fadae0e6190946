"""Which GGUF file of a repository is meant: by quantisation or by name; else the only one, or the one in Q4_K_M.

Whatever leaves a doubt is refused in one line that lists the choices.
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
    kind = (wanted or _USUAL).upper()
    found = [name for name in models if name == wanted] or [name for name in models if quantisation(name) == kind]
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


def _doubt(repo: str, names: list[str], found: list[str], wanted: str) -> str:
    if not names:
        return f"it has no GGUF files; leave :{wanted} out"
    kind, choices = wanted or _USUAL, _choices(repo, names)
    if found and all(_PART.search(name) for name in found):
        return f"{kind} is a split GGUF ({len(found)} files), which is not supported; {choices}"
    if found:
        return f"{len(found)} of its GGUF files are {kind}: {_listed(found)}; name one, as {repo}:{found[0]}"
    why = f"none of its GGUF files is {kind}" if wanted else f"it has several GGUF files and none in {kind}"
    return f"{why}; {choices}"


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
