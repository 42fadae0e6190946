"""chairlift, through its Python interface."""

import workload

from chairlift import LLM, SamplingParams


def main() -> None:
    arguments = workload.parser()
    arguments.add_argument("--kernels", default="auto")
    args = arguments.parse_args()
    llm = LLM(args.model, dtype="bfloat16", max_model_len=1024, prefix_cache=False, kernels=args.kernels)

    def run(requests: workload.Requests) -> list[int]:
        params = [SamplingParams(temperature=0, max_tokens=output, ignore_eos=True) for _, output in requests]
        answers = llm.generate([prompt for prompt, _ in requests], params, use_progress=False)
        return [len(answer.samples[0].tokens) for answer in answers]

    workload.measure(args, "chairlift" + ("" if args.kernels == "auto" else f" ({args.kernels} kernels)"), run)


if __name__ == "__main__":
    main()
