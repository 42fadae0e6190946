"""llama.cpp's options, by the names of `llama-server`."""

from chairlift.config.options.foreign.names import Foreign, constant, instead, needless, same

_MAPPED = "how weights are read is not an option"

LLAMA_CPP: tuple[Foreign, ...] = (
    same("model", "-m"),
    same("model", "--hf-repo", "-hf", "-hfr", note="ORG/NAME or ORG/NAME:QUANT"),
    same("max_model_len", "--ctx-size", "-c", note="of one request; requests do not divide it", values={"0": None}),
    same("max_running", "--parallel", "-np", values={"-1": None}),
    same("max_step_tokens", "--batch-size", "-b"),
    same("threads", "-t", values={"-1": 0}),
    same("served_model_name", "--alias", "-a"),
    same("chat_template", "--chat-template-file"),
    same("seed", "-s", values={"-1": None}),
    same("root_path", "--api-prefix"),
    same("cors_origin", "--cors-origins"),
    same("prefix_cache", "--cache-prompt", shape="switch"),
    same("frontends", "--threads-http"),
    same("tls_cert", "--ssl-cert-file"),
    same("tls_key", "--ssl-key-file"),
    constant("task", "embed", "--embedding", "--embeddings"),
    constant("task", "rerank", "--reranking", "--rerank"),
    constant("quiet", True, "--log-disable"),
    needless("all layers are on --device", "--n-gpu-layers", "-ngl", "--gpu-layers", shape="value"),
    needless("attention is always fused", "--flash-attn", "-fa", shape="optional"),
    needless("requests always share batches", "--cont-batching", "-cb"),
    needless("chat templates are always Jinja's", "--jinja"),
    needless("/metrics is always there", "--metrics"),
    needless("the live page shows requests", "--slots"),
    needless(_MAPPED, "--mmap"),
    needless(_MAPPED, "--mlock"),
    needless("every start is warm", "--warmup"),
    needless("there is one batch of tokens: -b", "--ubatch-size", "-ub", shape="value"),
    needless("prompts and decodes share --threads", "--threads-batch", "-tb", shape="value"),
    needless("requests share all KV blocks", "--kv-unified", "-kvu"),
    needless("reasoning is found from the chat template", "--reasoning-format", shape="value"),
    instead("use --kv-dtype int8 on a CPU, fp8 on a GPU", "--cache-type-k", "-ctk"),
    instead("use --kv-dtype int8 on a CPU, fp8 on a GPU", "--cache-type-v", "-ctv"),
    instead("use --tensor-parallel N", "--split-mode", "-sm"),
    instead("use ORG/NAME:QUANT as MODEL", "--hf-file", "-hff"),
    instead("set HF_TOKEN in the environment", "-hft"),
    instead("download the file, and give its path as MODEL", "--model-url", "-mu"),
    instead("weights stay on the device; use a smaller quantisation", "--n-cpu-moe", "-ncmoe"),
    instead("there is no speculative decoding", "--model-draft", "-md"),
    instead("use --max-request-seconds", "-to"),
    instead("use --log-level debug", "--verbose", "-v"),
    instead("requests say it; of `chairlift chat` and `generate` it is --temperature", "--temp"),
    instead("requests say it; of `chairlift chat` and `generate` it is --max-tokens", "--n-predict", "-n"),
    instead("models take text alone", "--mmproj", "-mm"),
)  # fmt: skip
# Options with the same name and meaning.
LLAMA_CPP_SAME = ("model", "threads", "host", "port", "api_key", "seed")
