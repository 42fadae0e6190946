"""What is refused before replicas are placed, and the load that is heard meanwhile."""

import sys
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import zmq

from chairlift.config.settings import LlmServing, Settings
from chairlift.core.errors import InvalidConfig
from chairlift.live.nodes.messages import Ended, MemberEngine, Members
from chairlift.serving.placing import process
from chairlift.serving.placing.process import Loads, find_ray
from chairlift.serving.process_setup import RunFolder
from fakes.patience import wait_until

ON_RAY = Settings(cluster="ray://auto")


def test_without_ray_the_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidConfig) as refused:
        find_ray(ON_RAY)
    assert str(refused.value) == "--cluster ray://auto needs ray: pip install 'chairlift[ray]'"


def test_an_llm_serving_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chairlift.serving.placing.process.check_extra", lambda *_: None)
    with pytest.raises(InvalidConfig, match="nodes do not read llm-serving files"):
        find_ray(replace(ON_RAY, compat=LlmServing(file=Path("a.yaml"))))


def test_settings_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="only Ray can start and end replicas"):
        Settings(autoscale="1-4")
    with pytest.raises(InvalidConfig, match="give --replicas 1 or more"):
        Settings(cluster="ray://auto", replicas=0)


@pytest.mark.parametrize("refusal", [ConnectionError("no"), RuntimeError("not yet"), SystemExit(1)])
def test_a_head_that_listens_and_does_not_answer_yet_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, refusal: BaseException
) -> None:
    pytest.importorskip("ray", reason="needs ray: pip install 'chairlift[ray]'")
    from chairlift.serving.placing import ray_places

    tried: list[str] = []

    def connect(address: str) -> None:
        tried.append(address)
        if len(tried) < 3:
            raise refusal

    monkeypatch.setattr(ray_places, "is_listening", lambda address: True)
    monkeypatch.setattr(ray_places, "connect", connect)
    monkeypatch.setattr(process, "_RETRY_S", 0.0)
    monkeypatch.setattr(process, "GROUP_SIGNALS", ())
    assert process._connect(process.FoundRay("head:1", "here"), threading.Event())
    assert tried == ["head:1"] * 3


def test_the_load_is_the_last_that_the_members_list_told(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with zmq.Context() as context, context.socket(zmq.XPUB) as members:
        members.bind(folder.members)
        loads = Loads(folder)
        assert members.recv() == b"\x01"  # it has subscribed
        assert loads.heard() is None
        old, new = MemberEngine("a", queued=7), MemberEngine("a", num_running=2, queued=100)
        for message in (Members([old]), Members([new, MemberEngine("b", num_running=1)]), Ended("a", True, {})):
            members.send(msgspec.msgpack.encode(message))
        heard: list[float] = []
        wait_until(lambda: heard.extend(filter(None, [loads.heard()])) or 196.0 in heard)  # type: ignore[func-returns-value]
        loads.close()
