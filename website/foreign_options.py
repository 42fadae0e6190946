"""Other engines' options beside ours, from the tables by which the command line takes them."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from chairlift.config.options.foreign.llama_cpp import LLAMA_CPP, LLAMA_CPP_SAME
from chairlift.config.options.foreign.names import Foreign
from chairlift.config.options.foreign.sglang import SGLANG, SGLANG_SAME
from chairlift.config.options.foreign.table import by_flag
from chairlift.config.options.foreign.vllm import VLLM, VLLM_SAME
from chairlift.config.options.foreign.vllm_bench import VLLM_BENCH, VLLM_BENCH_SAME
from chairlift.text.responses.templates.families import BY_NAME
from tables import code, plain


def vllm_options() -> str:
    return _options("vLLM", VLLM, VLLM_SAME)


def vllm_bench_options() -> str:
    return _options("vllm bench serve", VLLM_BENCH, VLLM_BENCH_SAME, has_argument=False)


def vllm_parsers() -> str:
    parser = by_flag("--tool-call-parser")
    assert parser is not None
    others = ", ".join(f"{code(theirs)} ({code(str(ours))})" for theirs, ours in parser.values.items())
    same = ", ".join(code(name) for name in sorted(BY_NAME))
    return f"Taken as they are: {same}.\n\nTaken for one of these: {others}.\n"


def sglang_options() -> str:
    return _options("SGLang", SGLANG, SGLANG_SAME)


def llama_cpp_options() -> str:
    return _options("llama.cpp", LLAMA_CPP, LLAMA_CPP_SAME)


def _options(engine: str, names: Iterable[Foreign], same: Iterable[str], has_argument: bool = True) -> str:
    """`has_argument`: the model is the argument MODEL, not a flag."""
    listed = list(names)
    aliases = [_alias(each, has_argument) for each in listed if each.option]
    needless = _by_note(each for each in listed if each.is_needless)
    refused = _by_note(each for each in listed if not each.option and not each.is_needless)
    parts: Sequence[str] = (
        "The same: " + ", ".join(code(_flag(name)) for name in same) + ".\n",
        f"{engine}'s option, and the one here:\n",
        *aliases,
        "",
        "Not needed, and ignored with a warning:\n",
        *(f"- {flags}: {why}" for flags, why in needless),
        "\nRefused, and what to do:\n",
        *(f"- {flags}: {use}" for flags, use in refused),
        "",
    )
    return "\n".join(parts)


def _alias(each: Foreign, has_argument: bool) -> str:
    note = f" ({_note(each)})" if each.note else ""
    return f"- {_flags(each)}: {code(_ours(each, has_argument))}{note}"


def _by_note(names: Iterable[Foreign]) -> list[tuple[str, str]]:
    """A row for each note, with all that have it."""
    rows: dict[str, list[str]] = {}
    for each in names:
        rows.setdefault(_note(each), []).append(_flags(each))
    return [(", ".join(_short(flags)), note) for note, flags in rows.items()]


def _short(flags: list[str]) -> list[str]:
    """One pattern for several that begin alike: `--mm-*`."""
    starts = [re.match("`--(?!enable|disable|max)[a-z]+-(?:parallel-)?", each) for each in flags]
    counts = Counter(start[0] for start in starts if start is not None)
    shown = [
        f"{start[0]}*`" if start is not None and "," not in each and counts[start[0]] > 2 else each
        for start, each in zip(starts, flags, strict=True)
    ]
    return list(dict.fromkeys(shown))


def _ours(foreign: Foreign, has_argument: bool) -> str:
    if foreign.option == "model" and has_argument:
        return "MODEL"
    flag = _flag(foreign.option)
    if foreign.shape != "constant":
        return flag
    if isinstance(foreign.constant, bool):
        return flag if foreign.constant else flag.replace("--", "--no-")
    return f"{flag} {foreign.constant}"


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")


def _flags(foreign: Foreign) -> str:
    return ", ".join(code(flag) for flag in foreign.flags)


def _note(foreign: Foreign) -> str:
    return plain(foreign.note)
