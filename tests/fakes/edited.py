"""Source with lines added to it, for tests of what a change has to touch. To be used in a process of its own."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def add_line(name: str, before: str, line: str) -> None:
    """Imports a module as if its file had this line before the first that begins with `before`."""
    spec = importlib.util.find_spec(name)
    assert name not in sys.modules and spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text()
    assert source.count(f"\n{before}") >= 1
    module = ModuleType(name)
    module.__file__ = spec.origin
    sys.modules[name] = module
    exec(compile(source.replace(f"\n{before}", f"\n{line}\n{before}", 1), spec.origin, "exec"), module.__dict__)
    parent, _, child = name.rpartition(".")
    setattr(importlib.import_module(parent), child, module)
