"""Renders the plain manifests in deploy/kubernetes from the chart: python deploy/render.py [FOLDER]. Needs helm.

Always: a manifest begins with a digest of the chart and the values it was made of, so that an outdated one shows
without helm too.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

DEPLOY = Path(__file__).parent
CHART = DEPLOY / "helm" / "chairlift"
VALUES = {  # by the manifest's name; the first has the chart's defaults
    "cpu": CHART / "values.yaml",
    "gpu": DEPLOY / "helm" / "values-gpu.yaml",
    "nodes": DEPLOY / "helm" / "values-nodes.yaml",
    "gateway": DEPLOY / "helm" / "values-gateway.yaml",
}


def header(name: str) -> str:
    values = VALUES[name]
    digest = hashlib.sha256()
    for path in (*sorted(path for path in CHART.rglob("*") if path.is_file()), values):
        digest.update(path.relative_to(DEPLOY).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return (
        f"# helm template chairlift deploy/helm/chairlift --values {values.relative_to(DEPLOY.parent).as_posix()}\n"
        f"# Rendered by deploy/render.py; do not edit. Made of sha256 {digest.hexdigest()}\n"
    )


def render(name: str) -> str:
    command = ["helm", "template", "chairlift", str(CHART), "--values", str(VALUES[name])]
    return header(name) + subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEPLOY / "kubernetes"
    for name in VALUES:
        (folder / f"{name}.yaml").write_text(render(name))


if __name__ == "__main__":
    main()
