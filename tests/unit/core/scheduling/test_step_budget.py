from chairlift.core.scheduling.step_size import StepBudget


def test_a_step_that_does_not_fit_halves_what_it_had() -> None:
    budget = StepBudget(4096)
    budget.shrink(1000)
    assert budget.num_tokens == 500
    budget.shrink(3)
    assert budget.num_tokens == 1


def test_a_small_step_does_not_make_the_budget_larger() -> None:
    budget = StepBudget(4096)
    budget.shrink(10)
    budget.shrink(4000)
    assert budget.num_tokens == 5


def test_it_grows_back_slowly_and_not_beyond_the_limit() -> None:
    budget = StepBudget(4096)
    budget.shrink(4096)
    for _ in range(100):
        budget.grow()
    assert 2048 < budget.num_tokens < 4096
    for _ in range(100):
        budget.grow()
    assert budget.num_tokens == 4096
    budget.shrink(2)
    for _ in range(1000):
        budget.grow()
    assert budget.num_tokens == 4096
