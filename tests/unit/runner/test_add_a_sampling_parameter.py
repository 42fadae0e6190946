"""docs/add-a-sampling-parameter.md, done in a copy of the sources."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import chairlift

ROOT = Path(chairlift.__file__).parents[2]
PAGE = ROOT / "docs" / "add-a-sampling-parameter.md"
USE = """
import asyncio, os, sys
import torch
import chairlift
from chairlift.core.errors import InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.runner.cuda.sampling.sampler import CudaSampler
from chairlift.runner.native import ops as native
from chairlift.runner.torch.ops import TorchOps
from fakes.http_world import HttpWorld
from fakes.requests import make_request
from fakes.sampled import Row, sample, step_of

assert chairlift.__file__.startswith(sys.argv[1])
try:
    SamplingParams(top_n_sigma=-1.0)
except InvalidRequest as error:
    print(error)
world = HttpWorld()
assert asyncio.run(world.post("/v1/completions", {"prompt": "Hi", "top_n_sigma": 1.5})).status_code == 200
assert world.client.requests[0].params.top_n_sigma == 1.5
for vocab in (40, 700):
    count, asked = 48, 1.5
    logits = torch.randn(1, vocab, generator=torch.Generator().manual_seed(vocab)) * 3
    logits[0, 3] = -torch.inf
    finite = logits[logits.isfinite()].double()
    kept = set((logits[0] >= logits.max() - asked * finite.std(correction=0)).nonzero().flatten().tolist())
    requests = [make_request(i, [0], temperature=3.0, top_n_sigma=asked * (i % 2)) for i in range(count)]
    rows = [Row(request, [0], 1) for request in requests]
    batch = logits.repeat(count, 1)
    tokens = sample(batch.clone(), rows, TorchOps()).tokens
    assert set(tokens[1::2]) <= kept and not set(tokens[::2]) <= kept
    assert tokens[1:2] == sample(batch[1:2].clone(), rows[1:2], TorchOps()).tokens
    if native.available():
        assert sample(batch.clone(), rows, native.NativeOps(1)).tokens == tokens
        assert sample(batch[1:2].clone(), rows[1:2], native.NativeOps(1)).tokens == tokens[1:2]
    if os.environ.get("TRITON_INTERPRET") == "1" and vocab == 40:
        on_device, last = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
        history = torch.zeros(1, 1, dtype=torch.int32)
        sampling = CudaSampler(torch.zeros(count, 1, dtype=torch.int32), history, last)
        sampling.choose(step_of(requests, 1), batch.clone(), on_device)
        assert on_device.tolist() == last.tolist() == tokens
"""


def edits() -> list[tuple[str, str, str]]:
    """(file, text before, text after) of each change that the page shows."""
    found = []
    for block in re.findall(r"```diff\n(.*?)```", PAGE.read_text(), re.DOTALL):
        path, *lines = block.splitlines()
        before, after = ("\n".join(line[1:] for line in lines if line[:1] != sign) for sign in "+-")
        found.append((path, before, after))
    return found


def test_the_page_adds_a_filter_that_works_on_every_device(tmp_path: Path) -> None:
    changes = edits()
    assert {path for path, _, _ in changes} == {
        "src/chairlift/core/params.py",
        "src/chairlift/runner/sampling/sampler.py",
    }
    shutil.copytree(ROOT / "src" / "chairlift", tmp_path / "src" / "chairlift", copy_function=os.symlink)
    for path, before, after in changes:
        target = tmp_path / path
        text = target.read_text()
        assert text.count(f"\n{before}\n") == 1, before
        target.unlink()
        target.write_text(text.replace(f"\n{before}\n", f"\n{after}\n"))
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), str(ROOT / "tests")])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "top_n_sigma" in done.stdout
