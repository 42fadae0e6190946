from chairlift.runner.cuda.step.ladder import ladder


def test_steps_beyond_512_are_captured_only_where_so_many_decode() -> None:
    assert ladder(1)[-1] == ladder(512)[-1] == 512
    assert ladder(513)[-2:] == (512, 576)
    assert ladder(1000)[-1] == ladder(1024)[-1] == ladder(5000)[-1] == 1024


def test_rungs_rise_and_hold_every_number_of_decodes() -> None:
    for count in range(1, 1025):
        rungs = ladder(count)
        assert list(rungs) == sorted(set(rungs)) and rungs[-1] >= count
