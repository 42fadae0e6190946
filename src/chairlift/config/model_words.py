"""The words that options and models share: number types, the task that a model's files decide, who computes it, what
a hub name looks like."""

import re

DTYPES = ("float32", "bfloat16", "float16", "float64")
DTYPE_WORDS = {"half": "float16", "float": "float32"}  # torch's and vLLM's
LOADED = dict.fromkeys(("safetensors", "hf", "gguf"), "auto")  # words for weights that a model's files hold
POOLING = "pooling"  # a task: the one beside text that the files say, or vectors
AUTO, OWN, TRANSFORMERS = MODEL_IMPLS = ("auto", "chairlift", "transformers")
NAME = r"[A-Za-z0-9][\w.-]*/[\w.-]+"  # org/name


def is_name(text: str) -> bool:
    return re.fullmatch(NAME, text) is not None
