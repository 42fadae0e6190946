"""The page about other engines' options, docs/coming-from-vllm.md:

python -m chairlift.config.options.foreign.page > docs/coming-from-vllm.md
"""

from collections.abc import Iterable

from chairlift.config.options.foreign.llama_cpp import LLAMA_CPP, LLAMA_CPP_SAME
from chairlift.config.options.foreign.names import Foreign
from chairlift.config.options.foreign.vllm import VLLM, VLLM_SAME

_INTRODUCTION = """\
# Coming from vLLM or llama.cpp

Most command lines of `vllm serve` and `llama-server` work with `chairlift serve`: options with a counterpart keep their
names, as flags and as keys of a `--config` file; options that are not needed are ignored with a warning; others are
refused with a line that says what to use. `chairlift serve --help` lists our own names.
This page is made by `python -m chairlift.config.options.foreign.page`.
"""


def page() -> str:
    return "\n".join((_INTRODUCTION, *_part("vLLM", VLLM, VLLM_SAME), *_part("llama.cpp", LLAMA_CPP, LLAMA_CPP_SAME)))


def _part(engine: str, names: Iterable[Foreign], same: Iterable[str]) -> list[str]:
    listed = list(names)
    aliases = [each for each in listed if each.option]
    needless = [each for each in listed if each.is_needless]
    others = [each for each in listed if not each.option and not each.is_needless]
    return [
        f"## {engine}\n",
        "The same: " + ", ".join(f"`{_flag(name)}`" for name in same) + ".\n",
        f"| {engine} | here | |\n|---|---|---|",
        *(f"| {_code(each.flags)} | `{_ours(each)}` | {each.note} |" for each in aliases),
        f"\nNot needed, and ignored with a warning:\n\n| {engine} | why |\n|---|---|",
        *(f"| {_code(each.flags)} | {each.note} |" for each in needless),
        f"\nRefused:\n\n| {engine} | what to do |\n|---|---|",
        *(f"| {_code(each.flags)} | {each.note} |" for each in others),
        "",
    ]


def _ours(foreign: Foreign) -> str:
    if foreign.option == "model":
        return "MODEL"
    flag = _flag(foreign.option)
    if foreign.shape != "constant":
        return flag
    if isinstance(foreign.constant, bool):
        return flag if foreign.constant else flag.replace("--", "--no-")
    return f"{flag} {foreign.constant}"


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")


def _code(flags: Iterable[str]) -> str:
    return ", ".join(f"`{flag}`" for flag in flags)


if __name__ == "__main__":
    print(page(), end="")
