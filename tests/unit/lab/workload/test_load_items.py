from chairlift.lab.workload.file import load_items


def test_the_lengths_of_the_contest_are_built_in() -> None:
    items = list(load_items("contest"))
    assert len(items) == 1500
    assert sum(item.prompt_tokens for item in items) == 29_925
    assert sum(item.output_tokens for item in items) == 98_086
    assert max(item.prompt_tokens + item.output_tokens for item in items) == 511


def test_drawn_lengths_are_left_out_where_they_are_too_long() -> None:
    items = list(load_items("lengths:prompt=1-100,output=10,count=500", limit=50, max_length=60))
    assert len(items) == 50
    assert max(item.prompt_tokens for item in items) <= 50
