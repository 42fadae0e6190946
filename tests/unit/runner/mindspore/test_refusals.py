"""What a run on MindSpore is refused for, most of it before MindSpore is imported."""

from dataclasses import replace
from importlib.metadata import PackageNotFoundError

import pytest
import torch

from chairlift.cli.main import main
from chairlift.config.settings import MINDSPORE_DEVICES, Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.mixers.attention import QueryGrowth
from chairlift.models.spec import LayerSpec
from chairlift.runner.kernels import check_exact, pick_attention, pick_kv_dtype
from chairlift.runner.machine import hardware
from chairlift.runner.mindspore import installed
from chairlift.runner.mindspore.installed import check_fits
from chairlift.runner.mindspore.target import pick_dtype
from chairlift.serving.parent import serve
from fakes.worlds.models import CONFIG

CPU = torch.device("cpu")


@pytest.fixture
def is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installed, "version", version)


@pytest.mark.usefixtures("is_missing")
@pytest.mark.parametrize("device", MINDSPORE_DEVICES)
def test_without_mindspore_one_line_says_what_to_install(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--device", device, "hello"]) != 0
    told = capsys.readouterr().err.strip()
    assert told.splitlines() == [
        f"chairlift: error: device {device} needs mindspore: pip install 'chairlift[mindspore]'"
    ]


@pytest.mark.usefixtures("is_missing")
def test_a_server_is_refused_before_it_starts() -> None:
    with pytest.raises(InvalidConfig, match="pip install"):
        serve(Settings(device="mindspore"))


def test_another_major_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "version", lambda name: "3.1.0")
    with pytest.raises(InvalidConfig, match=r"needs mindspore 2, and 3\.1\.0 is installed: pip install"):
        installed.check_installed("mindspore")
    monkeypatch.setattr(installed, "version", lambda name: "2.10.0")
    installed.check_installed("mindspore")


def test_other_kernels_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="kernels native: device mindspore has its own; leave --kernels out"):
        Settings(device="mindspore", kernels="native")


def test_exact_and_formats_of_other_kernels_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="exact: MindSpore's products"):
        check_exact("mindspore", CPU)
    with pytest.raises(InvalidConfig, match="kv_dtype int8: only the native kernels"):
        pick_kv_dtype("int8", "mindspore", torch.float32)
    with pytest.raises(InvalidConfig, match="attention flashinfer"):
        pick_attention("flashinfer", "mindspore", CPU, torch.float32, torch.float32, CONFIG, 16)


def test_each_target_has_its_number_types() -> None:
    assert pick_dtype("auto", "cpu") is pick_dtype("float32", "cpu") is torch.float32
    assert pick_dtype("float64", "cpu") is torch.float64
    assert pick_dtype("auto", "ascend") is torch.float16
    with pytest.raises(InvalidConfig, match="dtype bfloat16: MindSpore computes in float32 or float64 here"):
        pick_dtype("bfloat16", "cpu")


@pytest.mark.parametrize("device", MINDSPORE_DEVICES)
def test_torch_computes_on_the_host_beside_it(device: str) -> None:
    assert hardware.pick_device(device) == CPU


LAYER = CONFIG.layers[0]


@pytest.mark.parametrize(("layer", "named"), [
    (replace(LAYER, mixer=replace(LAYER.attention, has_output_bias=True)), "biases beside those of queries"),
    (replace(LAYER, mixer=replace(LAYER.attention, has_wide_qk_norm=True)), "norms over all heads"),
    (replace(LAYER, mixer=replace(LAYER.attention, growth=QueryGrowth(beta=0.1, length=9))), "queries that grow"),
    (replace(LAYER, is_parallel=True), "branches in parallel"),
    (replace(LAYER, feed_forward=replace(LAYER.feed_forward, has_gate=False)), "a feed-forward without a gate"),
])  # fmt: skip
def test_layers_that_it_does_not_compute_are_refused_by_name(layer: LayerSpec, named: str) -> None:
    check_fits(CONFIG, "mindspore")
    with pytest.raises(InvalidConfig, match=rf"device mindspore: \w+ has {named}.*; use --device cpu"):
        check_fits(replace(CONFIG, layers=(LAYER, layer)), "mindspore")


def test_centred_norms_are_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match="has norms that subtract the mean or add a bias"):
        check_fits(replace(CONFIG, has_centred_norms=True), "mindspore")
    with pytest.raises(InvalidConfig, match="has norms that subtract the mean or add a bias"):
        check_fits(replace(CONFIG, has_norm_biases=True), "mindspore")
