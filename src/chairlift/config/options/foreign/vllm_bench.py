"""The options of `vllm bench serve`, for `chairlift bench`: `option` is a flag of that command, and several of theirs
may make one of ours."""

from chairlift.config.options.foreign.names import Foreign, constant, instead, needless, same

_FIGURES = "mean, p50, p90, p99 and max of every figure are always shown"
_GREEDY = "requests ask for greedy answers, so that runs compare; leave it out"
_RAMP = "use --arrivals ramp:from=R,to=R,over=S"
_SHOWN = "progress is shown on a terminal alone"

APIS = {"/v1/completions": "completions", "/v1/chat/completions": "chat"}
BACKENDS = {"vllm": "completions", "openai": "completions", "openai-chat": "chat"}
VLLM_BENCH: tuple[Foreign, ...] = (
    same("url", "--base-url"),
    same("url", "--host", note="http://HOST:PORT"),
    same("url", "--port", note="http://HOST:PORT"),
    same("api", "--backend", note="vllm, openai or openai-chat", values=BACKENDS),
    same("api", "--endpoint-type", note="vllm, openai or openai-chat", values=BACKENDS),
    same("api", "--endpoint", note="/v1/completions or /v1/chat/completions", values=APIS),
    same("model", "--served-model-name", note="counts before --model"),
    same("adapters", "--lora-modules", note="in turn, not at random", shape="values"),
    same("workload", "--dataset-name", note="random, or sharegpt, burstgpt or custom with --dataset-path"),
    same("workload", "--dataset-path", note="the file"),
    same("workload", "--random-input-len", "--input-len", note="lengths:prompt=N; 1024 without it"),
    same("workload", "--random-output-len", "--output-len", note="lengths:output=N; 128 without it"),
    same("workload", "--random-range-ratio", note="lengths:prompt=LOW-HIGH,output=LOW-HIGH"),
    same("limit", "--num-prompts", note="of random lengths:count=N; 1000 without it"),
    same("output_tokens", "--custom-output-len"),
    same("arrivals", "--request-rate", note="poisson:rate=R; none for inf, which is the default with --dataset-name"),
    same("arrivals", "--burstiness", note="gamma:rate=R,cv=C, C being its power of -1/2"),
    same("arrivals", "--max-concurrency", note="closed:concurrency=N; not together with a rate"),
    same("warmup", "--num-warmups"),
    same("slo", "--goodput", note="ttft=500ms,tpot=50ms for ttft:500 tpot:50", shape="values"),
    same("out", "--result-dir"),
    constant("out", True, "--save-result", note="which names the folder"),
    same("title", "--label"),
    needless(_FIGURES, "--percentile-metrics", shape="value"),
    needless(_FIGURES, "--metric-percentiles", shape="value"),
    needless("every request has a row in bench.csv", "--save-detailed"),
    needless("the server is asked before the run", "--ready-check-timeout-sec", shape="value"),
    needless("code in a model's folder is never run", "--trust-remote-code"),
    needless("the tokenizer is always the fast one", "--tokenizer-mode", shape="value"),
    needless("the order of a file is kept", "--disable-shuffle"),
    needless("a file's requests are never repeated", "--no-oversample"),
    needless(_SHOWN, "--disable-tqdm"),
    needless("adapters take turns", "--lora-assignment", shape="value"),
    instead("use --out FOLDER, which gets bench.json", "--result-filename"),
    instead("use --out with a folder for each run, and `chairlift bench --diff`", "--append-result"),
    instead("use --title TEXT", "--metadata"),
    instead("use a workload whose requests share hash_ids", "--random-prefix-len"),
    instead("answers are asked for as long as the file's", "--sharegpt-output-len"),
    instead(_RAMP, "--ramp-up-strategy"),
    instead(_RAMP, "--ramp-up-start-rps"),
    instead(_RAMP, "--ramp-up-end-rps"),
    instead("use --api-key KEY", "--header"),
    instead(_GREEDY, "--extra-body"),
    instead(_GREEDY, "--temperature"),
    instead(_GREEDY, "--top-p"),
    instead(_GREEDY, "--top-k"),
    instead(_GREEDY, "--logprobs"),
    instead("use `chairlift serve --trace FILE` and `chairlift trace`", "--profile"),
)  # fmt: skip
# Options with the same name and meaning.
VLLM_BENCH_SAME = ("model", "tokenizer", "seed", "ignore_eos")
