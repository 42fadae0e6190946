"""SGLang's options, by the names of `sglang.launch_server`, beside those that vLLM has too."""

from chairlift.config.options.foreign.names import Foreign, constant, instead, needless, same

_GRAPHS = "steps are captured where the device can, in seconds; there is nothing to set"
_SPEED = "it changes how SGLang computes; there is nothing to set"
_LEAVE = "there is nothing to set; leave it out"
_DRAFTS = "there is no speculative decoding; leave it out"
_EXPERTS = "experts stay on one GPU; use --replicas N for several"
_NODES = "use `chairlift node` on the other machines"
_PREFIXES = "use --host-memory SIZE with --preemption swap; cached prefixes stay on the device"

SGLANG: tuple[Foreign, ...] = (
    same("model", "--model-path"),
    same("tokenizer", "--tokenizer-path"),
    same("max_model_len", "--context-length"),
    same("max_running", "--max-running-requests"),
    same("max_step_tokens", "--chunked-prefill-size", note="decodes count too", values={"-1": None}),
    same("block_size", "--page-size"),
    same("max_waiting", "--max-queued-requests"),
    same("memory", "--mem-fraction-static", note="of the whole GPU, other programs' included"),
    same("tensor_parallel", "--tp-size", "--tp"),
    same("replicas", "--dp-size", "--dp"),
    same(
        "policy", "--schedule-policy", note="fcfs, lpm or lof",
        values={"lpm": "longest-prefix", "lof": "longest-first"},
    ),
    constant("policy", "priority", "--enable-priority-scheduling", note="smaller numbers first"),
    constant("prefix_cache", False, "--disable-radix-cache"),
    constant("task", "embed", "--is-embedding"),
    constant("exact", True, "--enable-deterministic-inference"),
    same("lora", "--lora-paths", note="NAME=PATH, or JSON", shape="values"),
    same("max_loras", "--max-loras-per-batch"),
    same("seed", "--random-seed"),
    same("root_path", "--fastapi-root-path"),
    same("frontends", "--tokenizer-worker-num"),
    same("admin_key", "--admin-api-key"),
    same("log_level", "--log-level-http"),
    same("engine_timeout", "--watchdog-timeout"),
    same("override_generation_config", "--preferred-sampling-params"),
    same(
        "generation_config", "--sampling-defaults", note="model or openai",
        values={"model": "auto", "openai": "vllm"},
    ),
    needless("/metrics is always there", "--enable-metrics"),
    needless("cached tokens are always reported", "--enable-cache-report"),
    needless("grammars are computed by llguidance", "--grammar-backend", shape="value"),
    needless("--chunked-prefill-size bounds a step", "--max-prefill-tokens", shape="value"),
    needless("prompts are always computed in chunks; --prefill says how", "--enable-mixed-chunk"),
    needless("every start is warm", "--skip-server-warmup"),
    needless("every start is warm", "--warmups", shape="value"),
    needless("loaded adapters that wait are kept within --lora-memory", "--max-loaded-loras", shape="value"),
    needless(_GRAPHS, "--disable-cuda-graph"),
    needless(_GRAPHS, "--disable-cuda-graph-padding"),
    needless(_GRAPHS, "--cuda-graph-max-bs", shape="value"),
    needless(_GRAPHS, "--cuda-graph-bs", shape="values"),
    needless(_GRAPHS, "--enable-torch-compile"),
    needless(_GRAPHS, "--torch-compile-max-bs", shape="value"),
    needless(_SPEED, "--disable-overlap-schedule"),
    needless(_SPEED, "--enable-p2p-check"),
    needless(_SPEED, "--num-continuous-decode-steps", shape="value"),
    needless(_SPEED, "--sampling-backend", shape="value"),
    needless(_SPEED, "--lora-backend", shape="value"),
    needless(_SPEED, "--decode-log-interval", shape="value"),
    instead("use --num-blocks N: these tokens divided by --block-size", "--max-total-tokens"),
    instead("use --admission reserve or peak", "--schedule-conservativeness"),
    instead("use --tensor-parallel N; layers are not spread over GPUs", "--pp-size"),
    instead(_EXPERTS, "--ep-size", "--ep"),
    instead(_EXPERTS, "--enable-dp-attention"),
    instead(_NODES, "--dist-init-addr"),
    instead("use --attention triton or flashinfer", "--prefill-attention-backend"),
    instead("use --attention triton or flashinfer", "--decode-attention-backend"),
    instead("edit the model's config.json", "--json-model-override-args"),
    instead("send chats; completions are text as it is", "--completion-template"),
    instead("use --roles prefill:N,decode:M with --replicas", "--disaggregation-mode"),
    instead(_PREFIXES, "--enable-hierarchical-cache"),
    instead("requests bring logit_bias, or a shape in structured_outputs", "--enable-custom-logit-processor"),
    instead("use --log-prompts", "--log-requests-level"),
    instead("use --otlp-endpoint URL", "--enable-trace"),
    instead("use --trace FILE, and `chairlift trace`", "--crash-dump-folder"),
    instead("stop the server; then its memory is free", "--enable-memory-saver"),
)  # fmt: skip
# Beginnings of names that share an advice; for those that are not above.
SGLANG_FAMILIES = {
    "--disaggregation-": "use --roles prefill:N,decode:M with --replicas", "--hicache-": _PREFIXES,
    "--cuda-graph-": f"{_GRAPHS}; leave it out", "--piecewise-cuda-graph-": f"{_GRAPHS}; leave it out",
    "--deepep-": _EXPERTS, "--eplb-": _EXPERTS, "--elastic-ep-": _EXPERTS, "--flashinfer-": _LEAVE,
    "--triton-attention-": _LEAVE, "--torch-compile-": _LEAVE, "--weight-loader-": _LEAVE, "--encoder-": _LEAVE,
    "--kt-": _LEAVE, "--modelopt-": _LEAVE, "--debug-tensor-dump-": _LEAVE,
}  # fmt: skip
# Options with the same name and meaning.
SGLANG_SAME = (
    "served_model_name", "revision", "download_dir", "dtype", "device", "load_format", "max_lora_rank", "host",
    "port", "api_key",
)  # fmt: skip
