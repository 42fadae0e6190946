"""llama.cpp in this process, without its server: its C interface through llama-cpp-python, 32 sequences in one context.

All prompts are read first, in batches of up to 2,048 tokens; then each step decodes one token of every request that is
not done. The shared libraries may be others than the package's own: LLAMA_CPP_LIB_PATH names their folder.
"""

from collections.abc import Iterator

import llama_cpp
import numpy as np
import workload

SEQUENCES, TOKENS_PER_SEQUENCE, MAX_BATCH = 32, 512, 2048
Place = tuple[int, int, int, bool]  # token, position, sequence, whether its logits are wanted


class Llama:
    def __init__(self, path: str, threads: int) -> None:
        llama_cpp.llama_backend_init()
        self._silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._silent, None)
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_seq_max = SEQUENCES * TOKENS_PER_SEQUENCE, SEQUENCES
        params.n_batch, params.n_ubatch = MAX_BATCH, 512
        params.n_threads = params.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        assert self._context, f"{path} was not loaded"
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(MAX_BATCH, 0, 1)

    def forget(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def next_tokens(self, places: list[Place]) -> Iterator[tuple[int, int]]:
        """(sequence, likeliest token) of each place whose logits are wanted."""
        batch = self._batch
        batch.n_tokens = len(places)
        for i, (token, position, sequence, is_wanted) in enumerate(places):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, is_wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        assert llama_cpp.llama_decode(self._context, batch) == 0
        for i, (_, _, sequence, is_wanted) in enumerate(places):
            if is_wanted:
                logits = llama_cpp.llama_get_logits_ith(self._context, i)
                yield sequence, int(np.ctypeslib.as_array(logits, (self._vocab_size,)).argmax())


def main() -> None:
    args = workload.parser().parse_args()
    llama = Llama(args.model, workload.THREADS)

    def run(requests: workload.Requests) -> list[int]:
        return [len(answer) for answer in complete(llama, requests)]

    workload.measure(args, "llama.cpp, in process", run)


def complete(llama: Llama, requests: workload.Requests) -> list[list[int]]:
    llama.forget()
    answers: list[list[int]] = [[] for _ in requests]
    places = [
        (token, position, sequence, position == len(prompt) - 1)
        for sequence, (prompt, _) in enumerate(requests)
        for position, token in enumerate(prompt)
    ]
    while places:
        for start in range(0, len(places), MAX_BATCH):
            for sequence, token in llama.next_tokens(places[start : start + MAX_BATCH]):
                answers[sequence].append(token)
        places = [
            (answers[sequence][-1], len(prompt) + len(answers[sequence]) - 1, sequence, True)
            for sequence, (prompt, count) in enumerate(requests)
            if len(answers[sequence]) < count
        ]
    return answers


if __name__ == "__main__":
    main()
