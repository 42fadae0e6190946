"""The program as a user types it: answers on standard output, a mistake as one line on standard error and code 2."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest
import yaml

from chairlift.cli.main import main
from fakes.patience import HANG_S
from fakes.served import chairlift, serve
from fakes.tiny_model import write_tiny_model

CONTEST = {
    "model_path": {"prefill_model": ["/path/prefill.mindir"], "decode_model": ["/path/decode.mindir"]},
    "model_config": {
        "model_name": "llama_7b",
        "max_generate_length": 4096,
        "end_token": 2,
        "seq_length": [1024],
        "vocab_size": 32000,
        "prefill_batch_size": [3],
        "decode_batch_size": [5],
        "zactivate_len": [512, 1024],
        "batching_strategy": "continuous",
        "page_attention": True,
        "model_dtype": "DataType.FLOAT32",
        "pad_token_id": 0,
        "backend": "kbk",
    },
    "serving_config": {"agent_ports": [16002], "server_ip": "127.0.0.1", "server_port": 0},
    "pa_config": {"num_blocks": 257, "block_size": 16, "decode_seq_length": 4096},
    "tokenizer": {"type": "LlamaTokenizer", "vocab_file": "/path/tokenizer.model"},
}


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert_error(done.stderr, *words)


def assert_error(said: str, *words: str) -> None:
    assert "Traceback" not in said
    *others, last = said.splitlines()
    assert last.startswith("chairlift: error: "), said
    assert all(word in last for word in words), last
    assert all(line.startswith("chairlift: starting") for line in others), said


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """That `chairlift generate` ends with one line that has these words; in this process, which takes less time."""

    def check(model: Path, *words: str, options: Sequence[str] = ()) -> None:
        assert main(["generate", "--model", str(model), *options, "Hi"]) == 2
        assert_error(capsys.readouterr().err, *words)

    return check


def test_a_model_folder_that_is_not_there(tmp_path: Path, refused: Callable[..., None]) -> None:
    missing = tmp_path / "missing"
    assert_one_line(chairlift("serve", "--port", "0", "--model", missing), str(missing))
    refused(missing, str(missing))


def test_a_folder_that_holds_no_model(tmp_path: Path) -> None:
    assert_one_line(chairlift("serve", "--port", "0", "--model", tmp_path), str(tmp_path), "config.json")


def test_an_architecture_that_is_not_known(tmp_path: Path, refused: Callable[..., None]) -> None:
    write_tiny_model(tmp_path, architectures=["MambaForCausalLM"], model_type="mamba")
    refused(tmp_path, "MambaForCausalLM")


def test_a_rope_variant_that_is_not_known(tmp_path: Path, refused: Callable[..., None]) -> None:
    write_tiny_model(tmp_path, rope_scaling={"rope_type": "spiral", "factor": 2.0})
    refused(tmp_path, "spiral")


def test_a_config_that_is_not_json(tmp_path: Path, refused: Callable[..., None]) -> None:
    write_tiny_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    refused(tmp_path, "config.json")


@pytest.mark.slow
def test_weights_that_are_cut_off(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    assert_one_line(chairlift("serve", "--port", "0", "--model", tmp_path), "model.safetensors")


@pytest.mark.slow
def test_weights_that_do_not_fit_the_config(tmp_path: Path, refused: Callable[..., None]) -> None:
    write_tiny_model(tmp_path, hidden_size=128)
    refused(tmp_path, "shape")


def test_pickled_weights_are_refused(tmp_path: Path, refused: Callable[..., None]) -> None:
    write_tiny_model(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    refused(tmp_path, "safetensors")


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert_one_line(chairlift("serve", "--port", "0", "--model", tmp_path), "tokenizer")


def test_a_port_in_use(tiny_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_one_line(chairlift("serve", "--port", port, "--model", tiny_model), str(port), "in use")


def test_an_unknown_option_in_the_yaml(tmp_path: Path, tiny_model: Path) -> None:
    config = tmp_path / "my.yaml"
    config.write_text("max_runing: 4\n")
    assert_one_line(chairlift("serve", "--config", config, "--model", tiny_model), "max_runing", "max_running")


@pytest.mark.slow
def test_a_context_longer_than_the_model_s(tiny_model: Path, refused: Callable[..., None]) -> None:
    refused(tiny_model, "max_model_len", "1000000", options=("--max-model-len", "1000000"))


def test_a_strategy_that_is_not_built(tmp_path: Path, tiny_model: Path) -> None:
    config = tmp_path / "contest.yaml"
    config.write_text(
        yaml.safe_dump(CONTEST | {"model_config": CONTEST["model_config"] | {"batching_strategy": "sometimes"}})
    )
    assert_one_line(chairlift("serve", "--config", config, "--model", tiny_model), "sometimes")


@pytest.mark.slow
def test_generate_answers_in_the_order_of_the_prompts(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = ["Hello", "The quick brown fox", "Paris is"]
    (tmp_path / "prompts").write_text("\n".join(prompts))
    options = ("--model", str(tiny_model), "--kernels", "torch", "--kv-memory", "8MiB", "--max-tokens", "5", "--json")
    assert main(["generate", *options, "--file", str(tmp_path / "prompts")]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["prompt"] for answer in answers] == prompts
    assert all(1 <= answer["output_tokens"] <= 5 for answer in answers)


@pytest.mark.slow
def test_a_conversation_reads_its_lines_from_a_pipe(tiny_model: Path) -> None:
    options = ("--model", tiny_model, "--kernels", "torch", "--kv-memory", "8MiB", "--max-tokens", 5)
    done = chairlift("chat", *options, given="Hello\n/reset\nHello again\n/exit\n")
    assert done.returncode == 0, done.stderr
    assert "The conversation starts anew." in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_doctor_says_what_would_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {"machine", "instructions", "versions", "model", "would use"} == set(report)
    assert {"device", "dtype", "kernels"} <= set(report["would use"])


@pytest.mark.slow
def test_an_llm_serving_file_is_served_and_its_dead_keys_are_named_once(tiny_model: Path, tmp_path: Path) -> None:
    config = tmp_path / "contest.yaml"
    config.write_text(yaml.safe_dump(CONTEST))
    with serve(tmp_path / "log", "--config", config, "--model", tiny_model, "--kernels", "torch") as served:

        def status(route: str) -> dict[str, object]:
            found: dict[str, object] = json.loads(
                httpx.get(f"{served.url}/serving/{route}", timeout=HANG_S).text.removeprefix("data: ")
            )
            return found

        assert status("get_bs")["data"] == 5
        info = status("get_serverd_model_info")
        assert (info["model_id"], info["model_dtype"]) == ("llama_7b", "DataType.FLOAT32")
        assert (info["max_input_length"], info["max_total_tokens"]) == (1024, 5)
        body = {"inputs": "Hello", "parameters": {"max_new_tokens": 1023, "do_sample": "False"}}
        url = f"{served.url}/models/llama2/generate"
        answer = httpx.post(url, json=body, timeout=HANG_S).json()
        assert answer["generated_text"] == "Error202: prompt out of range"
        body["parameters"] = {"max_new_tokens": 4, "do_sample": "False"}
        assert httpx.post(url, json=body, timeout=HANG_S).json()["generated_tokens"] == 4
        warnings = [line for line in served.output.splitlines() if line.startswith("chairlift: warning:")]
        (dead,) = [line for line in warnings if "zactivate_len" in line]
        assert "model_path" in dead
        assert any("vocab_file" in line or "/path/tokenizer.model" in line for line in warnings)
        assert "blocks" in served.output and "256 blocks" in served.output


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "chairlift", "policies"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "fcfs" in done.stdout


def test_what_is_said_of_a_model_is_a_warning_of_the_command(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "llm.yaml").write_text(
        f"model_config: {{model_name: m, end_token: 2, decode_batch_size: [2], model_cfg_path: {tmp_path / 'm.yaml'}}}"
    )
    (tmp_path / "m.yaml").write_text("{num_layers: 1, num_heads: 2}")
    done = chairlift("generate", "--config", tmp_path / "llm.yaml", "--model", tiny_model, "--max-tokens", 1, "hello")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert f"chairlift: warning: model_config.model_cfg_path {tmp_path / 'm.yaml'} is not used" in lines[0]
    assert all(line.startswith("chairlift: warning: ") for line in lines)


@pytest.mark.nightly
def test_a_server_on_a_unix_socket_has_a_path_names_and_a_seed(tiny_model: Path, tmp_path: Path) -> None:
    path, log = tmp_path / "socket", tmp_path / "log"
    options = ("--uds", path, "--root-path", "llm", "--served-model-name", "a", "b", "--seed", "3")
    body = {"model": "b", "prompt": [1, 2, 3], "max_tokens": 8, "temperature": 1.0, "ignore_eos": True}
    tokens: list[list[list[str]]] = []
    for _ in range(2):
        transport = httpx.HTTPTransport(uds=str(path))
        with (
            serve(log, tiny_model, *options) as served,
            httpx.Client(transport=transport, base_url="http://localhost/llm/v1", timeout=HANG_S) as http,
        ):
            assert served.url == f"unix:{path}"
            assert [card["id"] for card in http.get("/models").json()["data"]] == ["a", "b"]
            answers = [http.post("/completions", json=body | {"logprobs": 0}).json() for _ in range(2)]
            assert {answer["model"] for answer in answers} == {"b"}
            tokens.append([answer["choices"][0]["logprobs"]["tokens"] for answer in answers])
        assert not path.exists()
        assert served.output.count("chairlift.requests: request id=") == 2
    assert tokens[0] == tokens[1]
    assert tokens[0][0] != tokens[0][1]  # each request draws its own
