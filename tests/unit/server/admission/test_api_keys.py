import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from chairlift.config.keys import ApiKey
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.params import SamplingParams
from chairlift.live.shared_memory.rate_limits import RateLimits
from chairlift.server.admission.access import check_access
from chairlift.server.answer import Answer, Delta, start_all
from chairlift.server.app import create_app
from chairlift.server.request_log.record import Record
from fakes.http_world import HttpWorld

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789abc"
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
WORDS = {"prompt": "Hello", "max_tokens": 4}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def routes() -> list[tuple[str, str]]:
    app = create_app(HttpWorld().context)
    found = []
    for route in app.routes:
        path = route.path.replace("{name:path}", "small").replace("{name}", "1")  # type: ignore[attr-defined]
        found += [(method, path) for method in sorted(route.methods - {"HEAD"})]  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("headers", [{}, bearer(BOB), {"Authorization": ALICE}, {"X-API-Key": BOB}])
async def test_every_route_but_health_wants_a_key(headers: dict[str, str]) -> None:
    async with HttpWorld(api_key=ALICE).http() as http:
        for method, path in routes():
            answer = await http.request(method, path, headers=headers, json=CHAT if method == "POST" else None)
            if path.startswith("/health"):
                assert answer.status_code == 200
            else:
                assert answer.status_code == 401, (method, path)
                assert answer.headers["www-authenticate"] == "Bearer"
                assert "small" not in answer.text
                assert "x-request-id" in answer.headers


async def test_the_page_is_open_but_the_words_at_its_place_are_not() -> None:
    async with HttpWorld(api_key=ALICE).http() as http:
        page = await http.get("/", headers={"Accept": "text/html"})
        words = await http.get("/")
    assert (page.status_code, words.status_code) == (200, 401)
    assert "org/small" not in page.text


@pytest.mark.parametrize("headers", [bearer(ALICE), {"Authorization": f"bearer  {ALICE}"}, {"X-API-Key": BOB}])
async def test_a_request_with_a_key_is_served(headers: dict[str, str]) -> None:
    async with HttpWorld(api_key=f"{ALICE}, {BOB}").http() as http:
        assert (await http.post("/v1/chat/completions", json=CHAT, headers=headers)).status_code == 200
        assert (await http.post("/models/small/generate", json={"inputs": "Hi"}, headers=headers)).status_code == 200


async def test_an_unknown_path_is_404_only_with_a_key() -> None:
    async with HttpWorld(api_key=ALICE).http() as http:
        assert (await http.get("/nowhere")).status_code == 401
        assert (await http.get("/nowhere", headers=bearer(ALICE))).status_code == 404


def keys_file(folder: Path, *items: dict[str, object]) -> Path:
    file = folder / "keys.yaml"
    file.write_text(yaml.safe_dump(list(items)))
    return file


async def test_a_key_has_its_own_name_and_share_whatever_the_body_says(tmp_path: Path) -> None:
    file = keys_file(tmp_path, {"name": "alice", "key": ALICE, "weight": 3})
    world = HttpWorld(api_key_file=file)
    async with world.http() as http:
        await http.post("/v1/completions", json=WORDS | {"user": "bob"}, headers=bearer(ALICE))
    attributes = world.client.requests[0].attributes
    assert (attributes.user, attributes.share) == ("alice", 3.0)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/models/small/generate"])
async def test_beyond_its_limit_a_key_is_told_when_to_come_back(tmp_path: Path, path: str) -> None:
    file = keys_file(tmp_path, {"name": "alice", "key": ALICE, "requests_per_minute": 2}, {"name": "bob", "key": BOB})
    body = {"/v1/completions": WORDS, "/v1/chat/completions": CHAT, "/models/small/generate": {"inputs": "Hi"}}[path]
    async with HttpWorld(api_key_file=file).http() as http:
        answers = [await http.post(path, json=body, headers=bearer(ALICE)) for _ in range(2)]
        answers.append(await http.post(path, content=b"{", headers=bearer(ALICE)))  # which is not read
        other = await http.post(path, json=body, headers=bearer(BOB))
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 20 <= int(answers[2].headers["retry-after"]) <= 30
    assert "the limit of this API key is reached, 2 requests a minute" in answers[2].text
    assert other.status_code == 200


async def test_the_tokens_of_answers_count(tmp_path: Path) -> None:
    file = keys_file(tmp_path, {"name": "alice", "key": ALICE, "tokens_per_minute": 5})
    async with HttpWorld(api_key_file=file).http() as http:
        first = await http.post("/v1/completions", json=WORDS, headers=bearer(ALICE))
        second = await http.post("/v1/completions", json=WORDS, headers=bearer(ALICE))
    assert first.json()["usage"]["total_tokens"] >= 5
    assert (first.status_code, second.status_code) == (200, 429)


@pytest.mark.parametrize(
    ("wide", "num"), [({"n": 3}, 3), ({"best_of": 3}, 3), ({"use_beam_search": True, "beam_width": 3}, 3), ({}, 1)]
)
async def test_samples_and_beams_count_as_many_requests_as_they_are_wide(
    tmp_path: Path, wide: dict[str, object], num: int
) -> None:
    file = keys_file(tmp_path, {"name": "alice", "key": ALICE, "requests_per_minute": 6})
    async with HttpWorld(api_key_file=file).http() as http:
        codes = [(await http.post("/v1/completions", json=WORDS | wide, headers=bearer(ALICE))).status_code
                 for _ in range(6 // num + 1)]  # fmt: skip
    assert codes == [200] * (6 // num) + [429]


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_tokenizing_counts_as_a_request_and_is_refused_before_the_body_is_looked_at(
    tmp_path: Path, path: str
) -> None:
    file = keys_file(tmp_path, {"name": "alice", "key": ALICE, "requests_per_minute": 2})
    body = {"/tokenize": {"prompt": "Hi"}, "/detokenize": {"tokens": [1]}}[path]
    async with HttpWorld(api_key_file=file).http() as http:
        codes = [(await http.post(path, json=body, headers=bearer(ALICE))).status_code for _ in range(2)]
        last = await http.post(path, content=b"{", headers=bearer(ALICE))
        other = await http.post("/v1/completions", json=WORDS, headers=bearer(ALICE))
    assert [*codes, last.status_code, other.status_code] == [200, 200, 429, 429]
    assert 20 <= int(last.headers["retry-after"]) <= 30


@pytest.fixture
def charged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens that keys were charged for, as they were."""
    found = list[int]()
    take, charge = RateLimits.take, RateLimits.charge

    def noting_take(rates: RateLimits, key: ApiKey, num_requests: int, num_tokens: int, now: float) -> float:
        found.append(num_tokens)
        return take(rates, key, num_requests, num_tokens, now)

    def noting_charge(rates: RateLimits, key: ApiKey, num_tokens: int, now: float, num_requests: int = 0) -> None:
        found.append(num_tokens)
        charge(rates, key, num_tokens, now, num_requests)

    monkeypatch.setattr(RateLimits, "take", noting_take)
    monkeypatch.setattr(RateLimits, "charge", noting_charge)
    return found


SEARCH = {"prompt": [1, 2], "use_beam_search": True, "beam_width": 4, "max_tokens": 5, "ignore_eos": True}


@pytest.mark.parametrize(
    ("asked", "num_output"),
    [
        ({}, 5),
        ({"n": 3}, 15),
        ({"top_k": 1000}, 5 + 5),  # drawn from much of the vocabulary
        ({"top_p": 0.1, "temperature": 2}, 5 + 5),
        ({"top_k": 50, "top_p": 0.1}, 5),
        ({"top_k": 1000, "temperature": 0}, 5),
        ({"best_of": 3}, 15 + 15),  # likelihoods choose the best
        (SEARCH, 20 + 20 + 20 * 8 // 32),  # and candidates those of a search, two for each of its members
        (SEARCH | {"n": 2}, 20 + 20 + 20 * 8 // 32),
    ],
)
async def test_every_sample_and_every_member_of_a_search_is_charged_for(
    charged: list[int], asked: dict[str, object], num_output: int
) -> None:
    async with HttpWorld(api_key=ALICE).http() as http:
        body = {"prompt": [1, 2], "max_tokens": 5, "ignore_eos": True} | asked
        assert (await http.post("/v1/completions", json=body, headers=bearer(ALICE))).status_code == 200
    assert charged == [2, num_output]


async def test_unread_tokens_are_charged_too(charged: list[int]) -> None:
    """As of a client that does not read: they are made, and kept for it."""
    world = HttpWorld(api_key=ALICE)
    [key] = world.context.load.keys
    params, record = SamplingParams(max_tokens=200, ignore_eos=True), Record("id", False, False)
    answer = Answer(world.context, record, [1, 2], params, key=key)
    world.client.script = lambda prompt, sample: [1] * 200
    reader = Unread()
    await start_all([answer], reader)
    answer.hold()
    while answer._num_computed() < 200:
        await asyncio.sleep(0)
    answer.close()
    assert reader.num_heard == 0
    assert charged == [2, 200]


GRAMMAR = "start: A\nA: " + "B " * 1100 + '\nB: "a"?'


@pytest.mark.parametrize(
    ("body", "num"),
    [
        ({"prompt": 5}, 0),
        ({"prompt": [1, 2], "n": 1000}, 0),
        ({"prompt": "Hello", "guided_grammar": GRAMMAR}, len(GRAMMAR) // 4 + len(GRAMMAR) // 1024),
        ({"prompt": 5, "user": "a" * 10_000}, 9),
        ({"prompt": [1, 2], "n": 8, "max_tokens": 10_000, "logprobs": 100}, 0),
        ({"prompt": "Hello", "max_tokens": 10_000}, 1),
        ({"prompt": "Hello", "logit_bias": {"99999": 1}}, 1),
    ],
)
async def test_a_refused_body_counts_as_a_request_with_the_work_for_it(
    charged: list[int], tmp_path: Path, body: dict[str, object], num: int
) -> None:
    file = keys_file(tmp_path, {"name": "alice", "key": ALICE, "requests_per_minute": 2})
    async with HttpWorld(api_key_file=file).http() as http:
        codes = [(await http.post("/v1/completions", json=body, headers=bearer(ALICE))).status_code for _ in range(3)]
    assert codes == [400, 400, 429]
    assert charged == [num, num]


async def test_shapes_and_scores_are_charged_for_with_the_tokens(charged: list[int]) -> None:
    async with HttpWorld("a" * 40, api_key=ALICE).http() as http:
        body = {"prompt": [1, 2], "guided_regex": "[a-c]{32,64}", "max_tokens": 80, "logprobs": 3}
        answer = await http.post("/v1/completions", json=body, headers=bearer(ALICE))
    num_output = answer.json()["usage"]["completion_tokens"]
    assert charged == [2 + len("[a-c]{32,64}") // 4, num_output + num_output + num_output * 4 // 32]


async def test_scored_tokens_of_a_prompt_are_charged_for_with_their_scores(charged: list[int]) -> None:
    async with HttpWorld(api_key=ALICE).http() as http:
        body = {"prompt": [1] * 32, "echo": True, "logprobs": 7, "max_tokens": 1}
        assert (await http.post("/v1/completions", json=body, headers=bearer(ALICE))).status_code == 200
    assert charged == [32 + 32 + 32 * 8 // 32, 1 + 1]


async def test_a_shape_that_the_engine_gives_up_on_is_charged_for(charged: list[int]) -> None:
    world = HttpWorld(api_key=ALICE)
    world.client.refusal = ("structured_outputs", "too dear")
    async with world.http() as http:
        body = {"prompt": [1, 2], "guided_regex": "[ab]", "n": 3}
        assert (await http.post("/v1/completions", json=body, headers=bearer(ALICE))).status_code == 400
    assert charged == [3, 1024]


async def test_what_a_key_cannot_pay_for_counts_as_a_request(tmp_path: Path) -> None:
    file = keys_file(tmp_path, {"name": "alice", "key": ALICE, "requests_per_minute": 4})
    async with HttpWorld(api_key_file=file).http() as http:
        codes = [(await http.post("/v1/completions", json=WORDS | {"n": n}, headers=bearer(ALICE))).status_code
                 for n in (2, 4, 4, 1)]  # fmt: skip
    assert codes == [200, 429, 429, 429]


class Unread:
    num_heard = 0

    def add(self, index: int, delta: Delta) -> None:
        self.num_heard += 1

    def fail(self, error: Exception) -> None:
        raise error


async def test_a_search_that_was_given_up_is_charged_for_as_if_it_had_ended(charged: list[int]) -> None:
    late, broken = HttpWorld(api_key=ALICE), HttpWorld(api_key=ALICE)
    late.client.times_out_at = broken.client.fails_at = 1
    for world in (late, broken):
        async with world.http() as http:
            await http.post("/v1/completions", json=SEARCH, headers=bearer(ALICE))
    assert charged == [2, 20 + 20 + 20 * 8 // 32, 2, 0]


async def test_a_search_that_expires_before_it_begins_costs_nothing_more(charged: list[int]) -> None:
    async with HttpWorld(api_key=ALICE).http() as http:
        answer = await http.post("/v1/completions", json=SEARCH | {"timeout": 1e-9}, headers=bearer(ALICE))
    assert answer.status_code == 504
    assert charged == [2, 0]


async def test_pages_of_other_sites_are_let_in_by_name_only() -> None:
    ask = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    async with HttpWorld().http() as http:
        assert "access-control-allow-origin" not in (await http.get("/version", headers=ask)).headers
    async with HttpWorld(api_key=ALICE, cors_origin="https://a.example, https://b.example").http() as http:
        preflight = await http.options(
            "/v1/completions", headers=ask | {"Access-Control-Request-Headers": "authorization"}
        )
        answer = await http.get("/version", headers=ask | bearer(ALICE))
        refused = await http.get("/version", headers=ask)
        other = await http.get("/version", headers=bearer(ALICE) | {"Origin": "https://c.example"})
    assert preflight.status_code == 200
    for found in (preflight, answer, refused):
        assert found.headers["access-control-allow-origin"] == "https://a.example"
    assert (answer.status_code, refused.status_code) == (200, 401)
    assert "access-control-allow-origin" not in other.headers


def test_admin_routes_that_others_can_reach_need_a_key() -> None:
    with pytest.raises(InvalidConfig, match="can be reached from elsewhere: set --admin-key"):
        check_access(Settings(admin_port=9, admin_host="0.0.0.0"))
    check_access(Settings(admin_port=9, admin_host="0.0.0.0", admin_key=ALICE))
    check_access(Settings(admin_port=9))


def test_a_certificate_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    with pytest.raises(InvalidConfig, match=r"tls_cert .*cert\.pem") as refusal:
        check_access(Settings(tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "cert.pem"))
    assert "\n" not in str(refusal.value)
    with pytest.raises(InvalidConfig, match="belong together"):
        Settings(tls_cert=tmp_path / "cert.pem")


def test_an_open_server_is_warned_of() -> None:
    [warning] = check_access(Settings(host="0.0.0.0"))
    assert "may use this server" in warning
    assert check_access(Settings()) == check_access(Settings(host="localhost")) == []
    assert check_access(Settings(host="0.0.0.0", api_key=ALICE)) == []


@pytest.mark.parametrize("at", [{}, {"host": "::1"}, {"host": "localhost"}, {"host": "0.0.0.0", "uds": Path("here")}])
def test_a_short_key_is_warned_of_where_this_machine_alone_connects(at: dict[str, Any], tmp_path: Path) -> None:
    [warning] = check_access(Settings(api_key="token-abc123", **at))
    assert warning == (
        "the API key key-1 has fewer than 16 characters: refused where other machines can connect (--host)"
    )
    file = keys_file(tmp_path, {"name": "alice", "key": ALICE}, {"name": "bob", "key": "b"})
    assert "the API key bob has" in str(check_access(Settings(api_key_file=file, **at)))


def test_a_short_key_is_refused_where_others_can_connect(tmp_path: Path) -> None:
    file = keys_file(tmp_path, {"name": "bob", "key": "b"})
    for keys in ({"api_key": "token-abc123"}, {"api_key_file": file}):
        with pytest.raises(InvalidConfig, match=r"at least 16 printable .*this one has 1"):
            check_access(Settings(host="0.0.0.0", **keys))


def test_settings_do_not_show_keys() -> None:
    assert ALICE not in repr(Settings(api_key=ALICE, admin_key=ALICE))
