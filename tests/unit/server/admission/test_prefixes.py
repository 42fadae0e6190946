"""Which cached prefixes a request may use."""

from pathlib import Path

import pytest

from chairlift.config.keys import ApiKey, read_keys
from chairlift.server.admission.api_keys import salt_of
from fakes.http_world import HttpWorld

ALICE, BOB, CAROL = "sk-alice-0123456789", "sk-bob-0123456789abc", "sk-carol-0123456789a"
PATHS = {
    "/v1/completions": {"prompt": "Hello", "max_tokens": 2},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2},
    "/models/small/generate": {"inputs": "Hello"},
}


async def salts(world: HttpWorld, path: str, *asked: tuple[str, str]) -> list[str]:
    """Of requests with these keys and salts of their own."""
    async with world.http() as http:
        for key, own in asked:
            headers = {"Authorization": f"Bearer {key}"}
            body = PATHS[path] | ({"cache_salt": own} if own else {})
            assert (await http.post(path, json=body, headers=headers)).status_code == 200
    return [request.attributes.cache_salt for request in world.client.requests]


@pytest.mark.parametrize("path", PATHS)
async def test_a_key_shares_with_itself_and_with_no_other(path: str) -> None:
    alice, again, bob = await salts(HttpWorld(api_key=f"{ALICE},{BOB}"), path, (ALICE, ""), (ALICE, ""), (BOB, ""))
    assert alice == again != bob
    assert "" not in (alice, bob)


async def test_a_salt_of_ones_own_parts_further_and_never_reaches_another_key() -> None:
    world = HttpWorld(api_key=f"{ALICE},{BOB}")
    bob, alice = await salts(world, "/v1/completions", (BOB, "x"), (ALICE, "x"))
    known = [bob, alice, bob.removeprefix("key "), bob.split()[1], "", "x"]  # if a client came to know them
    found = (await salts(world, "/v1/completions", *((ALICE, own) for own in known)))[2:]
    assert bob not in found
    assert len(set(found)) == len(known)


async def test_keys_of_a_group_share(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(f"- {{key: {ALICE}, cache_group: team}}\n- {{key: {BOB}, cache_group: team}}\n- {CAROL}\n")
    alice, bob, carol = await salts(
        HttpWorld(api_key_file=file), "/v1/completions", (ALICE, ""), (BOB, ""), (CAROL, "")
    )
    assert alice == bob != carol


async def test_all_share_where_the_operator_says_so_and_where_there_are_no_keys() -> None:
    shared = HttpWorld(api_key=f"{ALICE},{BOB}", share_prefixes="all")
    assert await salts(shared, "/v1/completions", (ALICE, ""), (BOB, "x")) == ["", "x"]
    assert await salts(HttpWorld(), "/v1/completions", ("", ""), ("", "x")) == ["", "x"]


def test_a_key_is_known_by_its_digest_wherever_it_stands_and_the_salt_does_not_tell_it() -> None:
    def alice(keys: str) -> ApiKey:
        found = read_keys(keys, None).find(ALICE)
        assert found is not None
        return found

    first, second = alice(f"{ALICE},{BOB}"), alice(f"{BOB},{ALICE}")
    assert first.name != second.name
    assert salt_of(first, "", "key") == salt_of(second, "", "key")
    for secret in (ALICE, first.digest.hex()):
        assert secret not in salt_of(first, "", "key")


@pytest.mark.parametrize("name", ["cache_salt", "user"])
async def test_a_name_that_is_kept_with_a_request_has_a_bound(name: str) -> None:
    for size, status in ((1024, 200), (1025, 400)):
        answer = await HttpWorld().post("/v1/completions", PATHS["/v1/completions"] | {name: "x" * size})
        assert answer.status_code == status
