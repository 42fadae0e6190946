"""chairlift, through its Python interface."""

import workload

from chairlift import LLM, SamplingParams

OPTIONS = ("kernels", "dtype", "quantize")


def main() -> None:
    arguments = workload.parser()
    for option in OPTIONS:
        arguments.add_argument(f"--{option}", help="as of `chairlift serve`")
    args = arguments.parse_args()
    chosen = {option: getattr(args, option) for option in OPTIONS if getattr(args, option) is not None}
    llm = LLM(args.model, max_model_len=1024, prefix_cache=False, threads=workload.THREADS, **chosen)

    def run(requests: workload.Requests) -> list[int]:
        params = [SamplingParams(temperature=0, max_tokens=output, ignore_eos=True) for _, output in requests]
        answers = llm.generate([prompt for prompt, _ in requests], params, use_tqdm=False)
        return [len(answer.outputs[0].token_ids) for answer in answers]

    shown = ", ".join(f"{option} {value}" for option, value in chosen.items())
    workload.measure(args, f"chairlift ({shown})" if shown else "chairlift", run)


if __name__ == "__main__":
    main()
