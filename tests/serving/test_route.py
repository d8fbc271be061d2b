import pytest

from experiments.assign import ExperimentSpec, UnitType, Variant, assign
from ingest.errors import NotFound
from serving.route import Caller, Choice, choose

ALIASES = {"champion": "best", "old": "m0"}
USER = Caller(user="u1", organization="o1")


def experiment(
    key: str, unit: UnitType = "user", slots: tuple[int, int] = (0, 10_000)
) -> ExperimentSpec:
    arms = (Variant("a", f"{key}-a", 1), Variant("b", f"{key}-b", 1))
    return ExperimentSpec(key, 1, unit, arms, salt=f"{key}/1/", layer=key, layer_range=slots)


@pytest.mark.parametrize(
    ("model", "checkpoint"), [("m7", "m7"), ("old", "m0"), ("champion", "best")]
)
def test_a_checkpoint_or_an_alias_pins_whatever_runs(model: str, checkpoint: str) -> None:
    chosen = choose(model, USER, running=[experiment("e")], aliases=ALIASES)
    assert chosen == Choice(checkpoint, "pinned", model)


def test_without_an_experiment_the_champion_answers() -> None:
    assert choose("agent", USER, running=[], aliases=ALIASES) == Choice("best", "default", "agent")


def test_without_a_champion_nobody_answers_and_the_error_says_what_to_do() -> None:
    with pytest.raises(NotFound, match="thumbwheel checkpoint alias"):
        choose("agent", Caller(), running=[experiment("e")], aliases={})


def test_the_first_experiment_that_has_the_caller_decides() -> None:
    empty, first, second = experiment("no", slots=(0, 0)), experiment("e1"), experiment("e2")
    chosen = choose("agent", USER, running=[empty, first, second], aliases=ALIASES)
    assert chosen.exposure is not None
    assert chosen.exposure.assignment == assign(first, "u1")
    assert (chosen.reason, chosen.exposure.unit_type, chosen.exposure.unit) == (
        "randomised",
        "user",
        "u1",
    )
    assert chosen.checkpoint == chosen.exposure.assignment.checkpoint


@pytest.mark.parametrize(("unit", "caller"), [("user", Caller(organization="o1")),
                                              ("organization", Caller(user="u1")),
                                              ("user", Caller())])  # fmt: skip
def test_who_does_not_name_the_unit_is_in_no_experiment(unit: UnitType, caller: Caller) -> None:
    chosen = choose("agent", caller, running=[experiment("e", unit)], aliases=ALIASES)
    assert (chosen.reason, chosen.exposure) == ("default", None)
