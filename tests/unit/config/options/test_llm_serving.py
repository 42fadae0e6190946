from dataclasses import replace
from pathlib import Path

import pytest

from chairlift.build import find_model
from chairlift.config.options.resolve import resolve
from chairlift.config.settings import LlmServing, Settings
from chairlift.core.errors import InvalidConfig

# Every section and key of the format, with the values of a typical paged-attention set-up.
FULL = """
model_path:
    prefill_model: ["/models/prefill.mindir"]
    decode_model: ["/models/decode.mindir"]
    argmax_model: "/models/argmax.mindir"
    topk_model: "/models/topk.mindir"
    prefill_ini: ["/models/prefill.ini"]
    decode_ini: ["/models/decode.ini"]
    post_model_ini: "/models/post.ini"
model_config:
    model_name: 'llama_7b'
    max_generate_length: 4096
    end_token: 2
    seq_length: [1024, 2048]
    seq_type: 'static'
    vocab_size: 32000
    prefill_batch_size: [5]
    decode_batch_size: [16, 50]
    zactivate_len: [512, 1024, 2048, 4096]
    model_type: 'dyn'
    batch_waiting_time: 0.0
    decode_batch_waiting_time: 0.0
    batching_strategy: 'continuous'
    current_index: False
    page_attention: True
    model_dtype: "DataType.FLOAT32"
    pad_token_id: 0
    backend: 'kbk'
    model_cfg_path: '/models/model.yaml'
    fastserve: False
serving_config:
    agent_ports: [16002]
    start_device_id: 0
    server_ip: 'localhost'
    server_port: 8835
    agent_ip: 'localhost'
    enable_host_post_sampling: False
pa_config:
    num_blocks: 1024
    block_size: 16
    decode_seq_length: 4096
fa_config:
    time_slice: 0.3
tokenizer:
    type: LlamaTokenizer
    vocab_file: '/no/such/tokenizer.model'
basic_inputs:
    type: LlamaBasicInputs
extra_inputs:
    type: LlamaExtraInputs
warmup_inputs:
    type: LlamaWarmupInputs
"""

REQUIRED = "model_name: llama_7b, end_token: 2, decode_batch_size: [8]"  # of model_config


def serve(folder: Path, text: str, **flags: object) -> Settings:
    path = folder / "llama.yaml"
    path.write_text(text)
    return resolve(flags, path)


def test_a_full_file_becomes_options(tmp_path: Path) -> None:
    settings = serve(tmp_path, FULL, model="org/name")
    assert (settings.host, settings.port, settings.model) == ("localhost", 8835, "org/name")
    assert (settings.max_running, settings.max_step_prompts, settings.max_model_len) == (50, 0, 2048)
    assert (settings.num_blocks, settings.block_size) == (1023, 16)
    assert settings.tokenizer is None
    assert settings.compat == LlmServing(
        file=tmp_path / "llama.yaml",
        model_name="llama_7b",
        model_dtype="DataType.FLOAT32",
        seq_length=2048,
        end_token=2,
        vocab_file=Path("/no/such/tokenizer.model"),
        model_cfg=Path("/models/model.yaml"),
        can_clip_max_model_len=True,
    )


def test_dead_keys_are_named_in_one_warning(tmp_path: Path) -> None:
    _, dead = serve(tmp_path, FULL, model="org/name").warnings
    for key in ("model_path.prefill_model", "model_config.zactivate_len", "serving_config.agent_ip", "fa_config."):
        assert key in dead
    for key in ("decode_batch_size", "server_port", "num_blocks", "page_attention", "fastserve", "batching_strategy"):
        assert key not in dead


def test_several_agents_are_as_many_devices(tmp_path: Path) -> None:
    devices = "agent_ports names 4 devices: --tensor-parallel 4 uses as many"
    several = serve(tmp_path, FULL.replace("[16002]", "[16002, 16003, 16004, 16005]"), model="org/name").warnings
    assert several[0].endswith(devices)
    assert not any("devices" in line for line in serve(tmp_path, FULL, model="org/name").warnings)


def test_a_prefill_batch_does_what_it_did_nothing_under_page_attention(tmp_path: Path) -> None:
    text = "model_config: {page_attention: PAGED, fastserve: FAST, prefill_batch_size: [1, 4]}"

    def translated(paged: str, fast: str = "false") -> Settings:
        return serve(tmp_path, text.replace("PAGED", paged).replace("FAST", fast), model="org/name")

    for settings in (translated("true"), translated("false", fast="true")):
        assert settings.max_step_prompts == 0
        line = settings.warnings[0]
        assert "ignored, as llm-serving did with page_attention on: model_config.prefill_batch_size" in line
        assert "--max-step-prompts" in line
    off = translated("false")
    assert off.max_step_prompts == 1
    assert not any("prefill_batch_size" in line for line in off.warnings)


def test_pages_do_what_they_did_nothing_without_page_attention(tmp_path: Path) -> None:
    pages = "pa_config: {num_blocks: 8, block_size: 128, decode_seq_length: 64}"
    text = f"model_config: {{{REQUIRED}, seq_length: [512]}}\n{pages}"
    settings = serve(tmp_path, text, model="org/name")
    assert (settings.num_blocks, settings.block_size, settings.max_model_len) == (None, 16, 512)
    [line] = settings.warnings
    assert "as llm-serving did with page_attention off: pa_config.num_blocks, pa_config.block_size" in line


def test_what_is_said_of_a_model_is_judged_where_one_is_loaded(tmp_path: Path) -> None:
    settings = serve(tmp_path, FULL)
    assert not any("embedded" in line or "does not exist" in line for line in settings.warnings)
    model_cfg, weights, tokenizer = find_model(settings).config.warnings
    assert model_cfg.startswith("model_config.model_cfg_path /models/model.yaml does not exist")
    assert "llama.yaml names no weights that can be loaded: the embedded default is used" in weights
    assert tokenizer.startswith("tokenizer.vocab_file /no/such/tokenizer.model does not exist")


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    settings = serve(tmp_path, FULL, port="9000", kv_memory="1GiB", max_running="3")
    assert (settings.port, settings.max_running, settings.num_blocks, settings.kv_memory) == (9000, 3, None, 2**30)


def test_a_context_asked_for_by_flag_is_not_clipped(tmp_path: Path) -> None:
    settings = serve(tmp_path, FULL, max_model_len="9999")
    assert (settings.max_model_len, settings.compat.can_clip_max_model_len) == (9999, False)


def test_an_existing_vocab_file_is_kept_until_the_model_is_known(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"")
    settings = serve(tmp_path, "model_config: {}\ntokenizer: {vocab_file: tokenizer.model}")
    assert (settings.tokenizer, settings.compat.vocab_file) == (None, tmp_path / "tokenizer.model")


def test_empty_sections_and_lists_leave_the_defaults(tmp_path: Path) -> None:
    text = "model_config: {seq_length: [], decode_batch_size: []}\nserving_config:\npa_config:\n"
    settings = serve(tmp_path, text, model="org/name")
    assert replace(settings, compat=LlmServing(), warnings=()) == Settings(model="org/name")


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("llama_7b", "hi"),
        ("internlm_7b", "<s><|User|>:hi<eoh>\n<|Bot|>:"),
        ("baichuan2pa", "<reserved_106>hi<reserved_107>"),
    ],
)
def test_the_model_name_picks_the_prompt_template(tmp_path: Path, name: str, prompt: str) -> None:
    compat = serve(tmp_path, f"model_config: {{model_name: {name}}}").compat
    assert compat.prompt_template.replace("{}", "hi") == prompt


def test_unknown_keys_are_named_in_a_line_of_their_own_and_do_no_harm(tmp_path: Path) -> None:
    text = f"""
model_config: {{{REQUIRED}, decode_batchsize: 1, my_key: 1, vocab_size: 3}}
pa_conf: {{num_blocks: 3}}
serving_conf:
zebra: 3
"""
    unknown, dead = serve(tmp_path, text, model="org/name").warnings
    assert unknown.endswith(
        ": model_config.decode_batchsize (did you mean decode_batch_size?), model_config.my_key, "
        "pa_conf (did you mean pa_config?), serving_conf (did you mean serving_config?), zebra"
    )
    assert dead.endswith(": model_config.vocab_size")


def test_a_section_without_a_known_neighbour_is_not_taken_for_an_option(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"model_confg: unknown option \(did you mean model_config\?\)"):
        serve(tmp_path, "model_confg: {end_token: 2}\nserving_confg: {server_port: 1}")
    assert serve(tmp_path, "model_path: here").model == "here"  # SGLang's name of an option
    [line] = serve(tmp_path, "fa_config: {rate: 3}\nmodel_confg: {end_token: 2}").warnings[:1]
    assert line.endswith("model_confg (did you mean model_config?)")


def test_static_batching_becomes_a_prefill_rule(tmp_path: Path) -> None:
    settings = serve(tmp_path, f"model_config: {{{REQUIRED}, batching_strategy: static}}", model="org/name")
    assert (settings.prefill, settings.policy, settings.warnings) == ("static", "fcfs", ())
    assert serve(tmp_path, "model_config: {batching_strategy: static}", prefill="mixed").prefill == "mixed"


def test_fastserve_becomes_a_policy_with_its_own_defaults(tmp_path: Path) -> None:
    settings = serve(tmp_path, f"model_config: {{{REQUIRED}, fastserve: true}}", model="org/name")
    assert (settings.policy, settings.warnings) == ("mlfq:rate=1.5,starve=10.0", ())


def test_fastserves_numbers_are_taken_over_where_they_mean_something(tmp_path: Path) -> None:
    text = "model_config: {fastserve: true}\nfa_config: {time_slice: 0.3, rate: 3, starve_waiting_time: '5'}"
    settings = serve(tmp_path, text, model="org/name")
    assert settings.policy == "mlfq:rate=3.0,starve=5.0"
    assert "fa_config.time_slice (levels are counted in tokens)" in settings.warnings[0]
    assert "rate" not in settings.warnings[0]


def test_switched_off_paging_is_named(tmp_path: Path) -> None:
    warning = serve(tmp_path, "model_config: {page_attention: false}", model="org/name").warnings[0]
    assert "page_attention (always on)" in warning


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("model_config: {batching_strategy: eager}", "batching_strategy must be one of continuous, static"),
        ("model_config: {batching_strategy: fastserve}", "FastServe is chosen with model_config.fastserve: True, got"),
        ("model_config: {fastserve: perhaps}", "model_config.fastserve must be true or false"),
        ("model_config: {fastserve: true}\nfa_config: {rate: fast}", "fa_config.rate must be a number, got 'fast'"),
        ("model_config: {fastserve: true}\nfa_config: {rate: 0.5}", "policy mlfq: levels, quantum and rate must be"),
        ("model_config: {decode_batch_size: [0]}", "decode_batch_size must be a whole number"),
        ("model_config: {seq_length: [many]}", "seq_length must be a whole number"),
        ("model_config: 3", "model_config must be a map"),
        ("serving_config: {server_port: 99999}", "serving_config.server_port must be a whole number"),
        (
            "model_config: {page_attention: true}\npa_config: {num_blocks: 1}",
            "pa_config.num_blocks must be a whole number between 2",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        serve(tmp_path, text)
    assert complaint in str(refusal.value)
    assert "llama.yaml" in str(refusal.value)
