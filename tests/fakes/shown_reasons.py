"""Why a shown command or example is not run as it stands, by its page or its beginning; all others are run.

Always: a file that is named here is there. What begins with `chairlift` is parsed all the same.
"""

from fakes.shown_commands import ROOT, Block, Command

# Pages whose examples have tests of their own.
OWN_TESTS = {
    "docs/structured-output.md": "tests/e2e/test_structured_output_page.py",
    "docs/anthropic-api.md": "tests/e2e/test_anthropic_page.py",
    "docs/python.md": "tests/e2e/test_python_page.py",
    "docs/add-a-policy.md": "tests/unit/test_add_a_policy.py",
    "docs/read-the-core.md": "tests/unit/core/test_read_the_core.py",
    "docs/add-a-model.md": "tests/unit/models/test_add_a_model.py",
    "docs/add-a-sampling-parameter.md": "tests/unit/runner/test_add_a_sampling_parameter.py",
}
REASONS = {
    "chairlift serve": "is resolved to settings; tests/e2e starts servers with them",
    "chairlift node": "tests/e2e/test_served_nodes.py starts nodes",
    "chairlift chat": "tests/e2e/test_command_line.py chats",
    "chairlift generate --device mindspore:ascend": "needs an Ascend; tests/mindspore/test_ascend.py has a fake of one",
    "chairlift pull": "needs the hub; tests/unit/cli/test_stored.py has a fake of it",
    "chairlift rm": "removes models; tests/unit/cli/test_stored.py removes its own",
    "chairlift batch": "needs a file of requests; tests/unit/cli/test_batch.py writes some",
    "chairlift bench": "tests/e2e/test_bench.py runs it against a server",
    "chairlift contest": "tests/e2e/test_contest.py runs it against a server",
    "chairlift verify": "tests/e2e/test_verify.py runs it; a minute for each way",
    "chairlift tune": "tests/e2e/test_tune.py runs it; minutes as shown",
    "chairlift convert": "needs a MindSpore checkpoint; tests/unit/cli/test_convert.py writes one",
    "make": "tests/unit/test_makefile.py checks the installing; tests would start themselves",
    "pip": "changes the environment; tests/unit/test_packaging.py installs",
    "cibuildwheel": "needs containers",
    "podman": "needs podman and an hour; tests/unit/test_deploy.py reads the Containerfile",
    "docker": "needs docker; tests/unit/test_deploy.py reads what it is given",
    "helm": "needs helm and a cluster; tests/unit/test_kubernetes.py checks chart and manifests",
    "kubectl": "needs a cluster; tests/unit/test_kubernetes.py checks what is applied",
    "sudo": "changes the machine; tests/unit/test_deploy.py reads the unit",
    "ray": "starts a cluster; tests/e2e/test_served_ray.py has one",
    "kill": "tests/e2e/test_served_stopping.py sends signals",
    "pytest": "tests would start themselves",
    "python benchmarks/": "takes minutes; tests/unit/test_docs.py checks that the script is there",
    "python acc_allclose.py": "a script of the contest, which is not part of this",
    "python -c": "converts files of the contest, which are not part of this",
}


def own_test(block: Block) -> str | None:
    return OWN_TESTS.get(block.page.relative_to(ROOT).as_posix())


def reason(command: Command) -> str | None:
    """Why it is not run; None: it is."""
    found = (why for start, why in REASONS.items() if _begins(command.text, start))
    return own_test(command.block) or next(found, None)


def _begins(text: str, start: str) -> bool:
    """With whole words, or with a folder."""
    return text.startswith(start if start.endswith("/") else f"{start} ") or text == start
