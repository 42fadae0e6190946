"""What computing a text takes, in tokens of a short one: attention makes the tokens of a long text dearer."""

_CONTEXT = 32_768  # tokens; there a token takes twice as long as at the beginning, as with models of some 8B parameters


def work(num_tokens: int) -> int:
    """Of the first tokens of a text; the difference of two is that of the tokens between."""
    return num_tokens + num_tokens * num_tokens // (2 * _CONTEXT)
