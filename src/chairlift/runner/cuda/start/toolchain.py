"""What Triton needs beside itself: when it first meets a GPU it compiles a small library in C."""

import os
import shutil
import sysconfig
from pathlib import Path

_COMPILERS = ("gcc", "clang")  # those that Triton looks for


def why_not_triton_compiles() -> str:
    """Why not, and the way out, in words that follow "they"; empty where it does."""
    if "CC" not in os.environ and not any(map(shutil.which, _COMPILERS)):
        return "need a C compiler, and there is none; install gcc"
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if not headers.exists():
        return f"need the headers of this Python, and there is no {headers}; install them (python3-dev, say)"
    return ""
