import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chairlift.build import assemble, assemble_watched, find_model
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.live.recovery.step_note import StepNote
from chairlift.live.wire.switchboard import Switchboard
from chairlift.runner.machine import nvml
from chairlift.runner.start.load import Loaded
from chairlift.telemetry.watch.view import View
from fakes.ledger import LedgerRunner
from fakes.nvml_library import LOST, FakeDriver
from fakes.patience import wait_until
from fakes.scrapes import Scrape, own_values
from fakes.submits import submit


def test_the_embedded_model_answers_greedily_and_with_a_penalty_unless_asked_otherwise() -> None:
    sampling = find_model(Settings()).config.sampling
    assert (sampling.temperature, sampling.repetition_penalty) == (0.0, 1.05)


def test_a_used_folder_of_logits_is_refused_by_what_would_write_there_alone(tmp_path: Path) -> None:
    (tmp_path / "used").touch()
    model = find_model(Settings(save_logits=tmp_path))
    with pytest.raises(InvalidConfig, match="--save-logits .* is there already"):
        assemble(model, loaded_on("cpu"))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    made = FakeDriver()
    monkeypatch.setattr("chairlift.build.find_reader", lambda: nvml.find_reader(made))
    monkeypatch.setattr("chairlift.telemetry.device.PERIOD_S", 0.001)
    with own_values():
        yield made


def loaded_on(device: str) -> Loaded:
    limits = Limits(vocab_size=50, max_model_len=64, block_size=4, num_blocks=16, max_running=4, max_step_tokens=32)
    runner = LedgerRunner(limits.num_blocks, limits.block_size, limits.vocab_size)
    return Loaded(runner, limits, "float32", "float32", "none", device, "torch", 1)


def watched(folder: Path, device: str) -> tuple[Switchboard, View]:
    return assemble_watched(find_model(Settings()), loaded_on(device), folder, StepNote(folder / "steps"), 1)[:2]


def test_masks_and_layers_of_a_long_step_are_signs_of_life(tmp_path: Path) -> None:
    loaded, note = loaded_on("cpu"), StepNote(tmp_path / "steps")
    loaded.runner.on_beat = None  # type: ignore[attr-defined]
    assemble_watched(find_model(Settings()), loaded, tmp_path, note, 1)
    before = note.last_beat
    loaded.runner.on_beat()  # type: ignore[attr-defined]
    assert note.last_beat > before


def run(switchboard: Switchboard, key: int) -> None:
    switchboard.submit(b"front end", submit(key, list(range(8)), SamplingParams(max_tokens=5, ignore_eos=True)))
    while switchboard.has_work:
        switchboard.step()


def test_an_engine_goes_on_when_its_gpu_tells_no_more(tmp_path: Path, driver: FakeDriver) -> None:
    switchboard, view = watched(tmp_path, "cuda")
    wait_until(lambda: b"410.5" in one_tick(view))
    run(switchboard, 1)
    assert Scrape.of(tmp_path).value("chairlift_device_busy_ratio") == 0.87
    driver.nvml.errors = dict.fromkeys((name for name in dir(driver.nvml) if name.startswith("nvml")), LOST)
    wait_until(lambda: not Scrape.of(tmp_path).has("chairlift_device_power_limit_watts"))
    run(switchboard, 2)
    scrape = Scrape.of(tmp_path)
    assert not scrape.has("chairlift_device_busy_ratio")
    assert scrape.value("chairlift_generated_tokens_total") == 10


def one_tick(view: View) -> bytes:
    view._began -= 1.0
    view.advance()
    return view.news(1)


def test_no_gpu_is_measured_beside_an_engine_on_a_cpu(tmp_path: Path, driver: FakeDriver) -> None:
    num_threads = threading.active_count()
    switchboard, _ = watched(tmp_path, "cpu")
    run(switchboard, 1)
    assert threading.active_count() == num_threads
    assert not Scrape.of(tmp_path).has("chairlift_device_busy_ratio")
