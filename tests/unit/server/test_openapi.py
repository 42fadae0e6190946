from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from starlette.routing import Route

from chairlift.server.errors import Detail
from fakes.http_world import HttpWorld


async def document(world: HttpWorld) -> Any:
    return (await world.get("/openapi.json")).json()


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


async def test_every_route_is_described_with_its_method() -> None:
    world = HttpWorld()
    described = {(path, method) for path, ways in (await document(world))["paths"].items() for method in ways}
    routes = {
        (route.path.replace(":path", ""), method.lower())
        for route in world.app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert described == routes


async def test_every_operation_has_an_id_of_its_own_and_a_group() -> None:
    body = await document(HttpWorld())
    operations = [operation for ways in body["paths"].values() for operation in ways.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    assert all(id.isidentifier() for id in ids)
    assert {tag for operation in operations for tag in operation["tags"]} == {tag["name"] for tag in body["tags"]}


async def test_every_example_is_a_body_that_is_read() -> None:
    world = HttpWorld()
    for path, ways in (await document(world))["paths"].items():
        for method, operation in ways.items():
            if method == "post":
                example = operation["requestBody"]["content"]["application/json"]["example"]
                answer = await world.post(path.replace("{name}", "small"), example)
                assert answer.status_code == 200 or "makes text" in answer.text, (path, answer.text)


async def test_every_operation_has_what_openapi_requires() -> None:
    body = await document(HttpWorld())
    assert body["openapi"].startswith("3.1")
    assert body["info"].keys() >= {"title", "version"}
    for path, ways in body["paths"].items():
        for operation in ways.values():
            assert all("description" in response for response in operation["responses"].values())
            named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path" and p["required"]}
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}


async def test_every_reference_leads_to_a_schema() -> None:
    body = await document(HttpWorld())
    found = set(references(body))
    assert found
    for reference in found:
        prefix, name = reference.rsplit("/", 1)
        assert prefix == "#/components/schemas"
        assert name in body["components"]["schemas"]


async def test_a_request_schema_lists_the_fields_that_are_read() -> None:
    schema = (await document(HttpWorld()))["components"]["schemas"]["CompletionRequest"]
    assert {"prompt", "max_tokens", "stop", "logit_bias", "return_token_ids"} <= schema["properties"].keys()
    assert schema["required"] == ["prompt"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("get", "/health", None),
        ("get", "/health/ready", None),
        ("post", "/v1/completions", {"prompt": "a", "max_tokens": 2}),
        ("post", "/v1/completions", {"prompt": "a", "max_tokens": 2, "stream": True}),
        ("post", "/v1/completions", {"prompt": 5}),
        ("post", "/models/{name}", {"inputs": "a"}),
        ("post", "/models/{name}", {"inputs": ["a"]}),
        ("post", "/models/{name}/generate", {"inputs": "a"}),
        ("post", "/models/{name}/generate_stream", {"inputs": "a"}),
    ],
)
async def test_answers_have_the_media_type_that_is_described(method: str, path: str, body: object) -> None:
    world = HttpWorld()
    answers = (await document(world))["paths"][path][method]["responses"]
    answer = await (world.get(path) if method == "get" else world.post(path, body))
    described = answers.get(str(answer.status_code), answers["default"])
    media = answer.headers.get("content-type", "").split(";")[0]
    assert "content" not in described or media in described["content"]


async def test_an_error_of_llm_serving_is_described_as_it_looks() -> None:
    world = HttpWorld()
    answers = (await document(world))["paths"]["/models/{name}"]["post"]["responses"]
    assert answers["default"]["content"] == {"application/json": {"schema": {"$ref": "#/components/schemas/Detail"}}}
    for body in ({"inputs": ["a"]}, []):
        found = msgspec.json.decode((await world.post("/models/small", body)).content, type=Detail, strict=True)
        assert found.detail
