"""Two containers of one image as the pods of the manifest, one of which is removed as Kubernetes removes a pod.

    sudo PYTHONPATH=src:tests python tests/stress/containers.py [--image chairlift] [--podman "podman"]

Needs root, `ip` and podman. Each container has a network namespace of its own, the arguments, user, read-only root,
mounts and capabilities of deploy/kubernetes/cpu.yaml. Clients ask both in turn; then one runs its `preStop` command
(in the container, as the kubelet does), clients forget it, long streams are opened, and it gets SIGTERM. Every answer
must be whole, the container must end with 0, and the other must go on. Exits with 1 if not.
"""

import argparse
import contextlib
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from nodes import _BRIDGE, address, namespaces

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from test_drain_hook import LONG, Clients, container, is_complete

from fakes.streams import Streams

_START_S = 300.0
_LEARN_S = 3.0  # until a proxy has heard that a pod goes
_TMPFS = ("/tmp", "/home/chairlift", "/cache")


class Podman:
    def __init__(self, command: str, options: str) -> None:
        self.command, self._options = shlex.split(command), shlex.split(options)

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout.strip()

    @contextlib.contextmanager
    def running(self, number: int, image: str, config: Path) -> Iterator[str]:
        name = f"{_BRIDGE}-{number}"
        tmpfs = [part for folder in _TMPFS for part in ("--tmpfs", f"{folder}:mode=1777")]
        self(
            "run", "--detach", "--name", name, "--network", f"ns:/run/netns/{name}", "--user", "10001:10001",
            "--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--shm-size", "1g", *tmpfs,
            "--volume", f"{config}:/etc/chairlift/config:ro", *self._options, image, *container()["args"],
        )  # fmt: skip
        try:
            yield name
        finally:
            print(self("logs", name), file=sys.stderr)
            self("rm", "--force", "--time", "0", name)

    def exit_code(self, name: str) -> int:
        return int(self("wait", name))


def until_ready(url: str) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health/ready", timeout=5.0).status_code == 200:
                return
        time.sleep(0.5)
    raise AssertionError(f"{url} is not ready after {_START_S:.0f} s")


def remove(podman: Podman, name: str, going: str, staying: str, clients: Clients) -> dict[str, object]:
    """As a kubelet does it: the hook, then SIGTERM."""
    hook = subprocess.Popen([*podman.command, "exec", name, *container()["lifecycle"]["preStop"]["exec"]["command"]])
    before = clients.answered[going]
    time.sleep(_LEARN_S)
    late = clients.answered[going] - before
    clients.forget(going)
    hook_code = hook.wait()
    streams = Streams(going, LONG, 4)
    told = time.monotonic()
    podman("kill", "--signal", "TERM", name)
    whole = [is_complete(text) for text in streams.texts()]
    code, took_s = podman.exit_code(name), time.monotonic() - told
    after = clients.answered[staying]
    time.sleep(_LEARN_S)
    return {
        "hook ended with": hook_code,
        "answers of it while the hook waited": late,
        "streams open at SIGTERM, whole": f"{sum(whole)} of {len(whole)}",
        "container ended with": code,
        "seconds from SIGTERM to its end": round(took_s, 1),
        "answers of the other afterwards": clients.answered[staying] - after,
        "answers in all": sum(clients.answered.values()),
        "refused or cut": len(clients.other),
        "is well": hook_code == code == 0 and all(whole) and not clients.other,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", default="chairlift")
    parser.add_argument("--podman", default="podman", help="the command, with its own options")
    parser.add_argument("--run", default="", help="more options of `podman run`")
    options = parser.parse_args()
    podman = Podman(options.podman, options.run)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        (folder / "chairlift.yaml").write_text("{}\n")  # the ConfigMap of the chart's defaults
        stack.enter_context(namespaces())
        names = [stack.enter_context(podman.running(i, options.image, folder)) for i in range(2)]
        going, staying = (f"http://{address(i)}:8000" for i in range(2))
        for url in (going, staying):
            until_ready(url)
        clients = stack.enter_context(Clients([going, staying], 4))
        while min(clients.answered[going], clients.answered[staying]) < 4:
            time.sleep(0.1)
        found = remove(podman, names[0], going, staying, clients)
    for what, value in found.items():
        print(f"| {what} | {value} |")
    for text in clients.other[:3]:
        print(text[-300:])
    return 0 if found["is well"] else 1


if __name__ == "__main__":
    sys.exit(main())
