"""The command line of a node that a server starts."""

from dataclasses import replace
from pathlib import Path

import pytest

from chairlift.cli.inputs.flags import settings_from
from chairlift.cli.main import _parser
from chairlift.config.options.node import node_flags
from chairlift.config.options.resolve import resolve
from chairlift.config.settings import Settings


def node_settings(settings: Settings) -> Settings:
    return settings_from(_parser().parse_args(["node", *node_flags(settings)]))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"move_kv": "off"},
        {"exact": True, "prefix_cache": False, "tensor_parallel": 2, "kv_memory": "64MiB", "memory": "0.5"},
        {"preset": "llm-serving", "policy": "shortest-first", "engine_timeout": "5", "log_format": "json"},
    ],
)
def test_a_node_has_the_settings_of_its_server(given: dict[str, object]) -> None:
    settings = resolve(given)
    assert node_settings(settings) == replace(settings, preset="none")


def test_keys_and_values_move_where_there_may_be_other_engines() -> None:
    assert not Settings().can_move_kv
    assert Settings(replicas=2).can_move_kv
    assert Settings(join="a:1").can_move_kv
    assert Settings(cluster="a:1").can_move_kv
    assert not Settings(join="a:1", move_kv="off").can_move_kv
    assert not Settings(join="a:1", tensor_parallel=2).can_move_kv


def test_what_is_the_servers_own_stays_there() -> None:
    settings = resolve({"cluster": "ray://auto", "replicas": 3, "autoscale": "1-4", "port": 9, "cluster_key": "k"})
    assert node_flags(settings) == []


def test_paths_are_given_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    assert node_flags(Settings(model="tiny")) == ["--model", str(tmp_path / "tiny")]
    assert node_flags(Settings(model="of/a-hub")) == ["--model", "of/a-hub"]
