"""vLLM's options, by the names of `vllm serve`."""

from collections.abc import Callable
from typing import Any

from chairlift.config.options.foreign.names import Foreign, constant, instead, needless, same
from chairlift.core.params import MAX_LOGPROBS

_GRAPHS = "steps are captured where the device can, in seconds; there is nothing to set"
_MEDIA = "models take text alone"
_SPEED = "it changes how vLLM computes; there is nothing to set"
_NODES = "use `chairlift node` on the other machines"
_EXPERTS = "experts stay on one GPU; use --replicas N for several"
_OFFLOAD = "weights stay on the device; use --quantize, or a smaller model"
_LEAVE = "there is nothing to set; leave it out"
_DRAFTS = "there is no speculative decoding; leave it out"
_STORED = (  # a file says itself which it is
    "gguf", "awq", "awq_marlin", "gptq", "gptq_marlin", "bitsandbytes", "compressed-tensors", "modelopt",
    "modelopt_fp4", "auto-round",
)  # fmt: skip


def _each(make: Callable[..., Foreign], why: str, *flags: str, **more: Any) -> tuple[Foreign, ...]:
    """Options that have one reason."""
    return tuple(make(why, flag, **more) for flag in flags)


VLLM: tuple[Foreign, ...] = (
    same("max_running", "--max-num-seqs"),
    same("max_step_tokens", "--max-num-batched-tokens"),
    same("memory", "--gpu-memory-utilization"),
    same("kv_memory", "--kv-cache-memory-bytes"),
    same("num_blocks", "--num-gpu-blocks-override"),
    same("kv_dtype", "--kv-cache-dtype", note="int8 on a CPU, fp8 on a GPU", values={"fp8_e4m3": "fp8"}),
    same(
        "quantize", "--quantization", "-q",
        note="not needed for weights that are stored quantised", values=dict.fromkeys(_STORED, "auto"),
    ),
    same("tensor_parallel", "--tensor-parallel-size", "-tp"),
    same("replicas", "--data-parallel-size", "-dp"),
    same("prefix_cache", "--enable-prefix-caching", shape="switch"),
    same("policy", "--scheduling-policy", note="fcfs, priority and eight others: `chairlift policies`"),
    same("task", "--runner", note="generate or pooling"),
    same("lora", "--lora-modules", note="NAME=PATH, or JSON", shape="values"),
    same(
        "tool_format", "--tool-call-parser", note="found from the chat template where it is left out",
        values={
            "llama3_json": "llama3-json", "llama4_json": "llama3-json", "llama4_pythonic": "llama4-pythonic",
            "pythonic": "llama4-pythonic", "qwen3_coder": "qwen3-coder",
            "qwen3_xml": "qwen3-coder", "deepseek_v3": "deepseek", "deepseek_v31": "deepseek-v3.1", "glm45": "glm",
            "openai": "gpt-oss", "llama3": "llama3-json", "qwen": "hermes", "qwen25": "hermes", "glm47": "glm",
            "deepseekv3": "deepseek", "deepseekv31": "deepseek-v3.1",
        },
    ),
    same("frontends", "--api-server-count", "-asc"),
    same("tls_cert", "--ssl-certfile"),
    same("tls_key", "--ssl-keyfile"),
    same("otlp_endpoint", "--otlp-traces-endpoint"),
    same("log_level", "--uvicorn-log-level", values={"trace": "debug", "critical": "error"}),
    same("log_requests", "--enable-log-requests", shape="switch"),
    constant("log_requests", False, "--disable-log-requests"),
    constant("log_requests", False, "--disable-uvicorn-access-log"),
    same("drain_timeout", "--shutdown-timeout"),
    constant("quiet", True, "--disable-log-stats", note="which ends the access log too"),
    needless("adapters are served where --lora or --lora-dir names them", "--enable-lora"),
    needless("tools are on for every model whose chat template knows them", "--enable-auto-tool-choice"),
    needless("reasoning is found from the chat template", "--reasoning-parser", shape="value"),
    needless("reasoning is found from the chat template", "--enable-reasoning"),
    needless("code in a model's folder is never run", "--trust-remote-code"),
    needless(_GRAPHS, "--enforce-eager"),
    *_each(needless, _GRAPHS, "--max-seq-len-to-capture", "--max-cudagraph-capture-size", shape="value"),
    needless(_GRAPHS, "--cudagraph-capture-sizes", shape="values"),
    needless(_GRAPHS, "--compilation-config", "-O", "-cc", shape="value"),
    needless("prompts are always computed in chunks; --prefill says how", "--enable-chunked-prefill"),
    needless("steps are always planned ahead", "--async-scheduling"),
    needless("loaded adapters that wait are kept within --lora-memory", "--max-cpu-loras", shape="value"),
    needless("--cluster ray://auto starts replicas on Ray", "--distributed-executor-backend", shape="value"),
    *_each(
        needless, "grammars are computed by llguidance", "--guided-decoding-backend", "--structured-outputs-config",
        shape="value",
    ),
    needless("the tokenizer is always the fast one", "--tokenizer-mode", shape="value"),
    needless("cached tokens are always reported", "--enable-prompt-tokens-details"),
    needless("responses always carry X-Request-Id", "--enable-request-id-headers"),
    *_each(
        needless, _MEDIA, "--limit-mm-per-prompt", "--mm-processor-cache-gb", "--mm-processor-kwargs",
        "--allowed-local-media-path", "--media-io-kwargs", "--mm-processor-cache-type", "--mm-encoder-tp-mode",
        "--mm-encoder-attn-backend", "--default-mm-loras", shape="value",
    ),
    needless(_MEDIA, "--allowed-media-domains", shape="values"),
    *_each(
        needless, _MEDIA, "--language-model-only", "--skip-mm-profiling", "--interleave-mm-strings",
        "--enable-mm-embeds", "--disable-chunked-mm-input",
    ),
    needless("code in a model's folder is never run", "--code-revision", shape="value"),
    *_each(
        needless, _SPEED, "--disable-custom-all-reduce", "--disable-cascade-attn", "--enable-dbo", "--numa-bind",
        "--enable-flashinfer-autotune", "--disable-hybrid-kv-cache-manager", "--kv-sharing-fast-prefill",
        "--fully-sharded-loras", "--use-v2-block-manager",
    ),
    *_each(
        needless, _SPEED, "--optimization-level", "--max-parallel-loading-workers", "--max-num-partial-prefills",
        "--long-prefill-token-threshold", "--safetensors-load-strategy", "--model-loader-extra-config", "--moe-backend",
        "--linear-backend", "--all2all-backend", "--kernel-config", "--performance-mode", "--prefix-caching-hash-algo",
        "--num-scheduler-steps", shape="value",
    ),
    needless("loading shows no bar", "--use-tqdm-on-load"),
    needless(f"requests may ask for up to {MAX_LOGPROBS}", "--max-logprobs", shape="value"),
    needless("every token is streamed as it comes", "--stream-interval", shape="value"),
    needless("only safe formats are downloaded, one copy of the weights", "--ignore-patterns", shape="values"),
    needless("config.json is read, or the head of a GGUF file", "--config-format", shape="value"),
    needless("--preemption swap with --host-memory SIZE swaps", "--swap-space", shape="value"),
    needless("found from the chat template", "--chat-template-content-format", shape="value"),
    needless("answers always have the role assistant", "--response-role", shape="value"),
    needless("no cookies are read", "--allow-credentials"),
    *_each(
        needless, "pages of --cors-origin may send what the routes take", "--allowed-methods", "--allowed-headers",
        shape="value",
    ),
    needless("the API page shows what these docs do, and needs no network", "--disable-fastapi-docs"),
    needless("the API page shows what these docs do, and needs no network", "--enable-offline-docs"),
    needless("/tokenizer_info is always there", "--enable-tokenizer-info-endpoint"),
    needless("no metric is hidden", "--show-hidden-metrics-for-version", shape="value"),
    needless("/metrics is always there", "--kv-cache-metrics"),
    needless("/metrics is always there", "--cudagraph-metrics"),
    *_each(
        needless, "heads of requests are bounded", "--h11-max-header-count", "--h11-max-incomplete-event-size",
        shape="value",
    ),
    needless("traces have every phase of a request", "--collect-detailed-traces", shape="values"),
    needless("--frontends says how many HTTP processes there are", "--disable-frontend-multiprocessing"),
    needless("tools are left out of the prompt then", "--exclude-tools-when-tool-choice-none"),
    needless("the access log has requests of models alone", "--disable-access-log-for-endpoints", shape="value"),
    needless("a renewed certificate is taken up by itself", "--enable-ssl-refresh"),
    needless("keys and values in fp8 need no scales", "--calculate-kv-scales"),
    *_each(
        needless, "states of recurrent layers have one layout", "--mamba-cache-dtype", "--mamba-ssm-cache-dtype",
        "--mamba-block-size", "--mamba-cache-mode", "--mamba-backend", shape="value",
    ),
    instead("use --tensor-parallel N; layers are not spread over GPUs", "--pipeline-parallel-size", "-pp"),
    *_each(
        instead, "use --tensor-parallel N; contexts are not spread over GPUs", "--prefill-context-parallel-size",
        "--decode-context-parallel-size",
    ),
    instead(_EXPERTS, "--enable-expert-parallel", "-ep"),
    *_each(instead, _EXPERTS, "--enable-eplb", "--eplb-config", "--expert-placement-strategy"),
    *_each(instead, "use --attention triton or flashinfer", "--attention-backend", "--attention-config"),
    instead("use --task embed or rerank", "--convert"),
    instead("use --cors-origin ORIGIN,...", "--allowed-origins"),
    instead("use --log-prompts", "--enable-log-outputs"),
    instead("set HF_TOKEN in the environment", "--hf-token"),
    *_each(
        instead, "edit the model's config.json", "--hf-overrides", "--hf-config-path", "--rope-theta",
        "--rope-scaling", "--disable-sliding-window", "--model-class-overrides",
    ),
    instead("clients' certificates are not asked for; use --api-key, or a proxy", "--ssl-ca-certs"),
    instead("clients' certificates are not asked for; use --api-key, or a proxy", "--ssl-cert-reqs"),
    instead("they are those of Python's TLS; use a proxy for others", "--ssl-ciphers"),
    instead("code of your own is not run in the server; put a proxy before it", "--middleware"),
    instead("use --log-level and --log-format", "--log-config-file"),
    instead("use --log-prompts, which shows whole answers", "--enable-log-deltas"),
    instead("use --log-prompts, which shows the beginning", "--max-log-len"),
    instead("`chairlift_requests_running` of /metrics tells it", "--enable-server-load-tracking"),
    instead("requests ask for it by stream_options.include_usage", "--enable-force-include-usage"),
    instead("requests ask for return_token_ids", "--return-tokens-as-token-ids"),
    instead("give --chat-template; requests bring none", "--trust-request-chat-template"),
    instead("requests bring their tools, and clients run them", "--tool-server"),
    instead("use --trace FILE, and `chairlift explain`", "--enable-logging-iteration-details"),
    instead("use --trace FILE, and `chairlift explain`", "--enable-per-request-metrics"),
    instead("use --tokenizer with a folder of that revision", "--tokenizer-revision"),
    instead("the tokenizer is always loaded; in Python, SamplingParams(detokenize=False)", "--skip-tokenizer-init"),
    instead("pooling is read from the model's files; edit 1_Pooling/config.json", "--pooler-config"),
    instead("requests bring logit_bias, or a shape in structured_outputs", "--logits-processors"),
    *_each(
        instead, _OFFLOAD, "--cpu-offload-gb", "--cpu-offload-params", "--offload-backend", "--offload-group-size",
        "--offload-num-in-group", "--offload-prefetch-step", "--offload-params",
    ),
    *_each(
        instead, "use --host-memory SIZE with --preemption swap; cached prefixes stay on the device",
        "--kv-offloading-size", "--kv-offloading-backend",
    ),
    instead(_DRAFTS, "--speculative-config", "-sc"),
    *_each(instead, _DRAFTS, "--spec-method", "--spec-model", "--spec-tokens"),
    instead("use --quantize int8, int4 or fp8", "--quantization-config"),
    instead("use --trace FILE, and `chairlift trace`", "--profiler-config"),
    instead("use --policy, also with a policy of your own", "--scheduler-cls"),
    instead("close the LLM, or stop the server; then its memory is free", "--enable-sleep-mode"),
    instead("adapters are kept in the type of --dtype; leave it out", "--lora-dtype"),
    instead("adapters are used as they were saved; leave it out", "--lora-target-modules"),
    instead("log-probabilities are those before temperature and penalties; leave it out", "--logprobs-mode"),
    instead("prompts are text or token ids; leave it out", "--enable-prompt-embeds"),
    *_each(
        instead, "answers have `logprobs` of tokens alone; leave it out", "--enable-return-routed-experts",
        "--return-sampling-mask",
    ),
    *_each(
        instead, "code of your own is not run beside the engine; leave it out", "--worker-cls",
        "--worker-extension-cls",
    ),
    instead("use --tool-format, or leave it out: it is found from the chat template", "--tool-parser-plugin"),
    instead("reasoning is found from the chat template; leave it out", "--reasoning-parser-plugin"),
    instead("use --replicas with --router prefix, which follows what each has cached", "--kv-events-config"),
    instead("use --roles prefill:N,decode:M with --replicas", "--kv-transfer-config"),
    *_each(
        instead, _NODES, "--headless", "--nnodes", "--node-rank", "--master-addr", "--master-port",
        "--data-parallel-rank", "--data-parallel-start-rank", "--data-parallel-size-local", "--data-parallel-address",
        "--data-parallel-rpc-port", "--data-parallel-backend", "--data-parallel-hybrid-lb",
        "--data-parallel-external-lb",
    ),
)  # fmt: skip
# Beginnings of names that share an advice; for those that are not above.
VLLM_FAMILIES = {
    "--spec-": _DRAFTS, "--speculative-": _DRAFTS, "--data-parallel-": _NODES, "--dp-supervisor-": _NODES,
    "--mm-": f"{_MEDIA}; leave it out", "--video-": f"{_MEDIA}; leave it out", "--mamba-": _LEAVE,
    "--numa-bind-": _LEAVE, "--dbo-": _LEAVE, "--dcp-": _LEAVE, "--safetensors-": _LEAVE, "--kv-cache-": _LEAVE,
    "--moe-": _LEAVE, "--cuda-graph-": f"{_GRAPHS}; leave it out", "--offload-": _OFFLOAD, "--enable-eplb-": _EXPERTS,
}  # fmt: skip
# Options with the same name and meaning.
VLLM_SAME = (
    "model", "tokenizer", "served_model_name", "revision", "download_dir", "chat_template", "dtype", "max_model_len",
    "block_size", "load_format", "generation_config", "override_generation_config", "default_chat_template_kwargs",
    "model_impl", "max_loras", "max_lora_rank", "seed", "host", "port", "uds", "root_path", "api_key", "config",
)  # fmt: skip
