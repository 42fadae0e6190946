"""transformers: `generate` on one padded batch; rows that are done early wait for the longest."""

import torch
import workload
from transformers import AutoModelForCausalLM


def main() -> None:
    arguments = workload.parser()
    arguments.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    args = arguments.parse_args()
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).eval()

    @torch.inference_mode()
    def run(requests: workload.Requests) -> list[int]:
        width, longest = max(len(p) for p, _ in requests), max(n for _, n in requests)
        ids = torch.zeros(len(requests), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, (prompt, _) in enumerate(requests):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        out = model.generate(
            ids, attention_mask=mask, do_sample=False, min_new_tokens=longest, max_new_tokens=longest, pad_token_id=0
        )
        assert out.shape[1] == width + longest
        return [n for _, n in requests]

    workload.measure(args, f"transformers generate, {args.dtype}", run)


if __name__ == "__main__":
    main()
