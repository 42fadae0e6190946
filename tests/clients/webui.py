"""A chat, background tasks and tools through an Open WebUI that uses a server: `python webui.py WEBUI_URL`.

The server runs with the embedded model, Open WebUI with WEBUI_AUTH=False ENABLE_OLLAMA_API=False OFFLINE_MODE=true
OPENAI_API_BASE_URL=http://.../v1 OPENAI_API_KEY=none RAG_EMBEDDING_ENGINE=openai and
TASK_MODEL_PARAMS='{"max_tokens": 40}'.
"""

import json
import sys
from typing import Any
from urllib.request import Request, urlopen

MODEL = "SmolLM2-135M-Instruct"
QUESTION = {"role": "user", "content": "What are the Alps?"}
CHAT = [QUESTION, {"role": "assistant", "content": "Mountains in Europe."}]
PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Paris", "Bern"]}}, "required": ["city"]}
SAMPLING = {
    "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "max_tokens": 40, "seed": 7, "stop": ["###"],
    "frequency_penalty": 0.1, "presence_penalty": 0.1, "logit_bias": "413:5", "reasoning_effort": "low",
}  # fmt: skip


def main(url: str) -> None:
    token = json.loads(_ask(url, "/api/v1/auths/signin", {"email": "", "password": ""}))["token"]

    def ask(path: str, body: dict[str, Any] | None = None) -> str:
        answer = _ask(url, path, body, token)
        print(f"ok      {path}")
        return answer

    assert MODEL in [card["id"] for card in json.loads(ask("/api/models"))["data"]]
    streamed = {"stream": True, "stream_options": {"include_usage": True}, "params": SAMPLING}
    said = ask("/api/chat/completions", {"model": MODEL, "messages": [QUESTION], **streamed})
    assert '"completion_tokens"' in said and said.rstrip().endswith("data: [DONE]")
    for task in ("title", "tags", "follow_up", "queries", "emoji"):
        body = {"model": MODEL, "messages": CHAT, "prompt": "The Alps", "type": "web_search"}
        assert json.loads(ask(f"/api/v1/tasks/{task}/completions", body))["choices"]
    tool = {"type": "function", "function": {"name": "weather", "description": "Weather", "parameters": PARAMETERS}}
    body = {"model": MODEL, "messages": [QUESTION], "max_tokens": 60, "tools": [tool], "tool_choice": "required"}
    assert json.loads(ask("/api/chat/completions", body))["choices"][0]["message"]["tool_calls"]
    assert json.loads(ask("/openai/responses", {"model": MODEL, "input": "Hi", "max_output_tokens": 8}))["output"]
    assert json.loads(ask("/api/v1/messages", {"model": MODEL, "messages": [QUESTION], "max_tokens": 8}))["content"]


def _ask(url: str, path: str, body: dict[str, Any] | None, token: str = "") -> str:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    with urlopen(Request(url + path, data, headers), timeout=120) as answer:
        return answer.read().decode()


if __name__ == "__main__":
    main(sys.argv[1])
