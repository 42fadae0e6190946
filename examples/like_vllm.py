"""A script in vLLM's shapes; only the import differs: `python examples/like_vllm.py --max-num-seqs 8`."""

from argparse import ArgumentParser

from chairlift import LLM, EngineArgs, RequestOutput, TokensPrompt


def show(title: str, outputs: list[RequestOutput]) -> None:
    for output in outputs:
        for answer in output.outputs:
            print(f"{title} {output.request_id}.{answer.index}: {answer.text!r} ({answer.finish_reason})")


def main() -> None:
    parser = EngineArgs.add_cli_args(ArgumentParser())
    parser.add_argument("--max-tokens", type=int, default=16)
    args = vars(parser.parse_args())
    max_tokens = args.pop("max_tokens")
    llm = LLM(**args)

    params = llm.get_default_sampling_params()
    params.max_tokens = max_tokens
    params.stop = ["\n\n"]
    params.top_k = -1
    show("text", llm.generate(["The capital of France is", {"prompt": "Water boils at"}], params, use_tqdm=False))

    ids = llm.get_tokenizer().encode("A chairlift is")
    show("tokens", llm.generate(TokensPrompt(prompt_token_ids=ids), params))

    conversation = [
        {"role": "system", "content": "You answer in one sentence."},
        {"role": "user", "content": "What is a chairlift?"},
    ]
    show("chat", llm.chat([conversation] * 2, params, use_tqdm=False))


if __name__ == "__main__":
    main()
