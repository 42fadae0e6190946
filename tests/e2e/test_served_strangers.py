"""A whole server with keys, limits and HTTPS, as a stranger and its operator meet it."""

import os
import signal
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from fakes.certificate import make_certificate, needs_openssl
from fakes.patience import HANG_S, wait_until
from fakes.served import Served, chairlift, serve

ALICE, BOB, CAROL, ADMIN = (f"sk-{name}-0123456789" for name in ("alice", "bob", "carol", "admin"))
WORDS = {"prompt": "Hi", "max_tokens": 3}
pytestmark = needs_openssl


@dataclass
class Site:
    served: Served
    admin_url: str
    keys: Path
    certificate: Path

    def client(self, key: str | None) -> httpx.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        context = ssl.create_default_context(cafile=self.certificate)
        return httpx.Client(base_url=self.served.url, headers=headers, verify=context, timeout=HANG_S)


@pytest.fixture(scope="module")
def site(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    keys, (certificate, key) = folder / "keys.yaml", make_certificate(folder)
    keys.write_text(f"- {{name: alice, key: {ALICE}, requests_per_minute: 4}}\n- {{name: bob, key: {BOB}}}\n")
    options = ("--model", tiny_model, "--kv-memory", "64MiB", "--kernels", "torch", "--frontends", "2")
    secured = ("--api-key-file", keys, "--tls-cert", certificate, "--tls-key", key, "--admin-port", "0")
    with serve(folder / "log", *options, *secured, environment={"CHAIRLIFT_ADMIN_KEY": ADMIN}) as served:
        admin_url = served.output.split("admin routes on ")[1].split()[0]
        yield Site(served, admin_url, keys, certificate)


@pytest.mark.slow
def test_only_health_is_open_without_a_key(site: Site) -> None:
    assert site.served.url.startswith("https://")
    with site.client(None) as http:
        assert http.get("/health/ready").status_code == 200
        for path in ("/v1/models", "/metrics", "/live", "/openapi.json"):
            assert http.get(path).status_code == 401
        assert http.post("/v1/completions", json=WORDS).status_code == 401


@pytest.mark.slow
def test_the_official_client_gets_in_with_its_key(site: Site) -> None:
    with site.client(None) as http:
        client = openai.OpenAI(base_url=f"{site.served.url}/v1", api_key=BOB, http_client=http, max_retries=0)
        assert client.completions.create(model=client.models.list().data[0].id, **WORDS).usage is not None
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key=CAROL).models.list()


def test_a_keys_limit_holds_whichever_front_end_answers(site: Site) -> None:
    codes = []
    for _ in range(8):  # each on a connection of its own
        with site.client(ALICE) as http:
            codes.append(http.post("/v1/completions", json=WORDS).status_code)
    assert codes == [200] * 4 + [429] * 4
    with site.client(BOB) as http:
        assert http.post("/v1/completions", json=WORDS).status_code == 200


def test_keys_come_and_go_without_a_restart(site: Site) -> None:
    context = ssl.create_default_context(cafile=site.certificate)
    before = site.keys.read_text()
    site.keys.write_text(before + f"- {{name: carol, key: {CAROL}}}\n")
    assert httpx.post(f"{site.admin_url}/admin/reload", verify=context, timeout=HANG_S).status_code == 401
    headers = {"Authorization": f"Bearer {ADMIN}"}
    assert (
        httpx.post(f"{site.admin_url}/admin/reload", verify=context, headers=headers, timeout=HANG_S).status_code == 200
    )
    with site.client(CAROL) as http:
        wait_until(lambda: http.get("/v1/models").status_code == 200)
    site.keys.write_text("- [")
    refused = httpx.post(f"{site.admin_url}/admin/reload", verify=context, headers=headers, timeout=HANG_S)
    assert (refused.status_code, "not valid YAML" in refused.text) == (400, True)
    for pid in site.served.pids()[1]:  # a restarted process has the valid keys, not those of the file
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: site.served.output.count("ready again") == 2)
    assert [_status(site, key) for key in (None, ALICE + "x", BOB, CAROL)] == [401, 401, 200, 200]
    site.keys.write_text(before)
    site.served.process.send_signal(signal.SIGHUP)
    wait_until(lambda: _status(site, CAROL) == 401)
    assert _status(site, BOB) == 200


def test_nothing_of_a_key_or_a_prompt_is_logged(site: Site) -> None:
    with site.client(BOB) as http:
        http.post("/v1/completions", json={"prompt": "a secret of mine", "max_tokens": 1, "temperature": "hot"})
        http.post("/v1/completions", json={"prompt": "a secret of mine", "max_tokens": 1})
    assert "secret" not in site.served.output
    assert "0123456789" not in site.served.output


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--host", "0.0.0.0", "--api-key", "short"), "api_key: a key must be text of at least 16"),
        (("--tls-cert", "/dev/null"), "--tls-cert and --tls-key belong together"),
        (("--tls-cert", "/dev/null", "--tls-key", "/dev/null"), "tls_cert /dev/null"),
        (("--admin-port", "0", "--admin-host", "0.0.0.0"), "set --admin-key too"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_the_start(options: tuple[str, ...], complaint: str) -> None:
    ended = chairlift("serve", "--port", "0", *options)
    assert ended.returncode == 2
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr


def _status(site: Site, key: str | None) -> int:
    with site.client(key) as http:
        return http.get("/v1/models").status_code
