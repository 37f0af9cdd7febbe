"""A process claims the cores that it uses, not all of the machine."""

import pytest

from backends.base import ModelLoadError
from backends.neuron.cores import NUMBER, VISIBLE, claim, read_cores


@pytest.mark.parametrize(
    ("text", "cores"), [("0", [0]), ("0-3", [0, 1, 2, 3]), ("0,2", [0, 2]), ("4-5, 8", [4, 5, 8]), ("7-7", [7])]
)
def test_lists_of_cores_are_read(text: str, cores: list[int]) -> None:
    assert read_cores(text) == cores


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-", "-1", "0,,1", "0;1"])
def test_other_lists_are_refused(text: str) -> None:
    with pytest.raises(ModelLoadError, match=r"NEURON_RT_VISIBLE_CORES=.*: not a list of cores such as 0-3 or 0,2"):
        read_cores(text)


def test_first_cores_are_claimed_by_default() -> None:
    for count, expected in ((1, "0"), (2, "0-1"), (8, "0-7")):
        environment: dict[str, str] = {}
        claim(count, environment)
        assert environment == {VISIBLE: expected}
        claim(count, environment)
        assert environment == {VISIBLE: expected}, "as for a second model of the process"


def test_user_s_choice_stands() -> None:
    for given in ({VISIBLE: "4-7"}, {NUMBER: "2"}, {VISIBLE: "2,3", NUMBER: "1"}):
        environment = dict(given)
        claim(2, environment)
        assert environment == given


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({VISIBLE: "4"}, "NEURON_RT_VISIBLE_CORES=4 names 1 cores, the model takes 2: name as many"),
        ({NUMBER: "1"}, "NEURON_RT_NUM_CORES=1: the model takes 2 cores: leave it out, or set as many"),
        ({NUMBER: "x"}, "NEURON_RT_NUM_CORES=x: the model takes 2 cores: leave it out, or set as many"),
    ],
)
def test_too_few_cores_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        claim(2, given)
    assert str(caught.value) == words
