"""A process claims the NeuronCores that it uses, within what the user allows."""

import pytest

from backends.neuron import NUMBER, VISIBLE, claim, read_cores
from specpair.engines.errors import ModelLoadError


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("0", [0]),
        ("0-3", [0, 1, 2, 3]),
        ("0,2", [0, 2]),
        ("0-1,4-5", [0, 1, 4, 5]),
        ("7, 3", [7, 3]),
        ("12-12", [12]),
    ],
)
def test_list_of_cores_is_read(text: str, cores: list[int]) -> None:
    assert read_cores(text) == cores


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "0,,2", "0-1-2", "1.5", "0x1", "0-99999999999"])
def test_bad_list_of_cores_is_refused_by_name(text: str) -> None:
    with pytest.raises(ModelLoadError, match=f"^{VISIBLE} is '.*': expected are numbers and ranges of cores, as 0-3"):
        read_cores(text)


def test_core_named_twice_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=f"^{VISIBLE} is '0-2,2': it names a core twice$"):
        read_cores("0-2,2")


@pytest.mark.parametrize(
    ("before", "count", "claimed", "after"),
    [
        ({}, 1, [0], {VISIBLE: "0"}),
        ({}, 4, [0, 1, 2, 3], {VISIBLE: "0-3"}),
        ({VISIBLE: ""}, 1, [0], {VISIBLE: "0"}),
        ({VISIBLE: "5"}, 1, [5], {VISIBLE: "5"}),
        ({VISIBLE: "4-7"}, 2, [4, 5], {VISIBLE: "4-5"}),
        ({VISIBLE: "4-7", NUMBER: "4"}, 1, [4], {VISIBLE: "4", NUMBER: "4"}),
        ({NUMBER: "2"}, 2, None, {NUMBER: "2"}),
        ({NUMBER: "8"}, 2, None, {NUMBER: "8"}),
        ({NUMBER: "0"}, 2, [0, 1], {NUMBER: "0", VISIBLE: "0-1"}),
    ],
)
def test_process_claims_no_more_than_it_uses(
    before: dict[str, str], count: int, claimed: list[int] | None, after: dict[str, str]
) -> None:
    environment = dict(before)
    assert claim(count, environment) == claimed
    assert environment == after
    assert claim(count, environment) == claimed, "a second model of the same size finds its cores"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({VISIBLE: "2-3"}, f"^{VISIBLE} is '2-3': the model takes 4 cores, name as many, or unset it"),
        ({NUMBER: "2"}, f"^{NUMBER} is '2': the model takes 4 cores, set 4, or unset it$"),
        ({NUMBER: "many"}, f"^{NUMBER} is 'many': the model takes 4 cores, set 4, or unset it$"),
    ],
)
def test_fewer_cores_than_the_model_takes_are_refused(environment: dict[str, str], words: str) -> None:
    with pytest.raises(ModelLoadError, match=words):
        claim(4, environment)


@pytest.mark.parametrize("listed", ["0,2", "3,2", "0-1,4-5"])
def test_cores_of_a_model_in_one_process_must_be_consecutive(listed: str) -> None:
    """As the runtime demands. A process for each core has no such limit."""
    cores = read_cores(listed)
    words = f"^{VISIBLE} is '{listed}': the {len(cores)} cores of a model must be consecutive, as {cores[0]}-"
    with pytest.raises(ModelLoadError, match=words):
        claim(len(cores), {VISIBLE: listed})
    assert claim(len(cores), {VISIBLE: listed}, one_process=False) == cores
    assert claim(1, {VISIBLE: listed}) == cores[:1]
