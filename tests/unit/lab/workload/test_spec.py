import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.lab.workload.spec import parse_spec


def test_a_name_may_stand_alone() -> None:
    assert parse_spec("trace", "--arrivals", ("trace",)).values == {}


def test_parameters_are_split() -> None:
    assert parse_spec("gamma:rate=2,cv=0.5", "--arrivals", ("gamma",)).values == {"rate": "2", "cv": "0.5"}


@pytest.mark.parametrize("text", ["a:", "a:x", "a:x=", "a:=1", "a:x=1,,y=2", "a:x=1,x=2"])
def test_parameters_that_are_not_pairs_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--it a: parameters are written key=value"):
        parse_spec(text, "--it", ("a",))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidConfig, match="--it 'c' is not known; there are: a, b"):
        parse_spec("c:x=1", "--it", ("a", "b"))


def test_an_unknown_parameter_lists_the_known_ones() -> None:
    with pytest.raises(InvalidConfig, match="--it a: unknown parameter 'z'; there are: x, y"):
        parse_spec("a:z=1", "--it", ("a",)).expect(("x", "y"))


@pytest.mark.parametrize("text", ["a:x=0", "a:x=-1", "a:x=nan", "a:x=inf", "a:x=one", "a:y=1"])
def test_a_rate_is_a_number_above_0(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--it a: x must be a number above 0"):
        parse_spec(text, "--it", ("a",)).positive("x")


@pytest.mark.parametrize("text", ["a:x=0", "a:x=1.5", "a:x=-3", "a"])
def test_a_count_is_a_whole_number(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--it a: x must be a whole number"):
        parse_spec(text, "--it", ("a",)).count("x")
