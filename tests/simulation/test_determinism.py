"""Two runs with the same inputs give the same plans, whatever the interpreter's hash seed."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
SCRIPT = """
import sys, zlib
sys.path[:0] = [{tests!r}, {src!r}]
from fakes.worlds.draws import random_world
text = ""
for seed in range(40):
    world = random_world(seed).run()
    for plan in world.runner.plans:
        text += repr([(c.request.id, c.start, c.count, c.blocks) for c in plan.chunks]) + repr(plan.copies)
    text += repr(world.events)
print(len(text), zlib.crc32(text.encode()))
"""


def test_plans_do_not_depend_on_the_hash_seed() -> None:
    script = SCRIPT.format(tests=str(TESTS), src=str(TESTS.parent / "src"))
    printed = {
        subprocess.run(
            [sys.executable, "-c", script], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(printed) == 1
