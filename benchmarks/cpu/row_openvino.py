"""OpenVINO GenAI's continuous batching; --model is a folder that `optimum-cli export openvino` made."""

import numpy as np
import openvino as ov
import openvino_genai as genai
import workload


def main() -> None:
    args = workload.parser().parse_args()
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1
    scheduler.max_num_seqs = 32
    scheduler.enable_prefix_caching = False
    pipeline = genai.ContinuousBatchingPipeline(args.model, scheduler, "CPU", {"INFERENCE_PRECISION_HINT": "bf16"})

    def config(count: int) -> genai.GenerationConfig:
        c = genai.GenerationConfig()
        c.max_new_tokens = c.min_new_tokens = count
        c.ignore_eos = True
        c.do_sample = False
        return c

    def run(requests: workload.Requests) -> list[int]:
        prompts = [ov.Tensor(np.array([prompt], dtype=np.int64)) for prompt, _ in requests]
        answers = pipeline.generate(prompts, [config(n) for _, n in requests])
        return [len(answer.m_generation_ids[0]) for answer in answers]

    workload.measure(args, "openvino-genai", run)


if __name__ == "__main__":
    main()
