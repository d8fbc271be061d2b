"""Preferences between completions, told as feedback and ranked over HTTP."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from statsmodels.api import GLM, families

from tests.facts import fact
from tests.running import Running
from thumbwheel.cli import main

Tell = Callable[..., None]


def served(name: str, checkpoint: str) -> dict[str, Any]:
    data = {"completion.id": name, "checkpoint": checkpoint, "outcome": "ok", "reason": "pinned"}
    return fact("completion.finished", data=data)


def prefers(first: str, second: str, value: str, rater: str, **changes: Any) -> dict[str, Any]:
    data = {
        "target": {"kind": "completion", "id": first},
        "gen_ai.evaluation.name": f"preference/{second}",
        "gen_ai.evaluation.score.label": value,
        "rater": rater,
    } | changes
    return fact("feedback.submitted", data=data)


def duels_of(running: Running, **query: str) -> dict[str, Any]:
    running.until_stored()
    answer = running.http.get("/v1/duels", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def arena(names: str, strengths: list[float], rng: np.random.Generator, *, duels: int) -> list[Any]:
    """(first, second, outcome) of simulated judges who like what is shown first by half a logit."""
    drawn = []
    for _ in range(duels):
        one, two = rng.choice(len(names), 2, replace=False)
        odds = np.exp(strengths[one] - strengths[two] + 0.5)
        first = rng.random() < odds / (1 + odds)
        drawn.append((names[one], names[two], "first" if first else "second"))
    return drawn


def test_strengths_and_the_worth_of_a_place_in_front_are_the_clustered_logits(
    running: Running, tell: Tell
) -> None:
    drawn = arena("abc", [0.0, 0.4, 1.0], np.random.default_rng(3), duels=600)
    facts, design, won, owner = [], [], [], []
    for number, (first, second, outcome) in enumerate(drawn):
        facts += [served(f"{number}f", first), served(f"{number}s", second)]
        facts.append(prefers(f"{number}f", f"{number}s", outcome, f"u{number % 80}"))
        row = [(first == x) - (second == x) for x in "bc"]
        design.append([*map(float, row), 1.0])
        won.append(float(outcome == "first"))
        owner.append(number % 80)
    tell(*facts)
    fitted = GLM(np.array(won), np.array(design), family=families.Binomial()).fit(
        cov_type="cluster", cov_kwds={"groups": np.array(owner), "use_correction": False}
    )
    found = duels_of(running, reference="a")
    by_name = {each["checkpoint"]: each for each in found["checkpoints"]}
    assert [by_name[x]["log_strength"] for x in "abc"] == pytest.approx([0.0, *fitted.params[:2]])
    assert found["shown_first"]["log_odds"] == pytest.approx(fitted.params[2])
    error = fitted.bse[0] * np.sqrt(80 / 79)
    low, high = by_name["b"]["interval"]
    assert (high - low) / 2 == pytest.approx(1.99045021 * error)  # t with 79 df
    assert [each["checkpoint"] for each in found["checkpoints"]] == ["c", "b", "a"]
    assert (found["duels"], found["raters"], found["reason"]) == (600, 80, None)
    assert by_name["c"]["adjusted_p"] >= by_name["c"]["p_value"]


def test_a_raters_last_word_on_a_pair_counts_in_whichever_order_it_was_shown(
    running: Running,
) -> None:
    running.server.ingest.intake.take_own(served("x", "a"), served("y", "b"))
    word = {"target": {"kind": "completion", "id": "x"}, "name": "preference/y", "rater": "ann"}
    turned = {"target": {"kind": "completion", "id": "y"}, "name": "preference/x", "rater": "ann"}
    first = running.http.post("/v1/feedback", json={**word, "value": "first"}).json()
    running.http.post("/v1/feedback", json={**word, "value": "tie", "rater": "bob"})

    def counts() -> list[int]:
        """Preferred b, preferred a, tied, both bad."""
        sign = duels_of(running, reference="a")["sign_test"]
        return [sign[name] for name in ("wins", "losses", "ties", "both_bad")] if sign else []

    assert counts() == [0, 1, 1, 0]
    running.http.post("/v1/feedback", json={**turned, "value": "first"})
    assert counts() == [1, 0, 1, 0]
    running.http.post("/v1/feedback", json={**word, "value": "both_bad"})
    assert counts() == [0, 0, 1, 1]
    # To take a word back brings none of the earlier ones back, also not the turned one.
    running.http.delete(f"/v1/feedback/{first['id']}")
    assert counts() == [0, 0, 1, 0]


def test_two_checkpoints_are_compared_by_the_sign_test_of_independent_raters(
    running: Running, tell: Tell
) -> None:
    outcomes = ["second"] * 14 + ["first"] * 5 + ["tie"] * 4 + ["both_bad"] * 2
    facts = []
    for number, outcome in enumerate(outcomes):
        facts += [served(f"{number}f", "old"), served(f"{number}s", "new")]
        facts.append(prefers(f"{number}f", f"{number}s", outcome, f"u{number}"))
    tell(*facts)
    found = duels_of(running, reference="old")
    sign = found["sign_test"]
    assert (sign["wins"], sign["losses"], sign["ties"], sign["both_bad"]) == (14, 5, 4, 2)
    more, as_many = (binomtest(least, 19, alternative="greater").pvalue for least in (15, 14))
    assert sign["p_value"] == pytest.approx(more + as_many)  # twice the tail, 14 by half
    assert sign["estimate"] == pytest.approx((14 - 5) / 25)
    # The newer one was always shown second: nobody can tell its merit from its place.
    assert found["shown_first"]["log_odds"] is None
    assert found["shown_first"]["reason"]
    assert found["checkpoints"][0]["checkpoint"] == "new"


def test_where_no_order_is_known_there_is_a_reason_and_no_number(
    running: Running, tell: Tell
) -> None:
    nothing = duels_of(running)
    assert (nothing["checkpoints"], nothing["duels"]) == ([], 0)
    assert "nobody" in nothing["reason"]
    facts = []
    for number in range(20):
        facts += [served(f"{number}f", "a"), served(f"{number}s", "b")]
        facts.append(prefers(f"{number}f", f"{number}s", "first", f"u{number}"))
    tell(*facts)
    never_lost = duels_of(running)
    assert never_lost["reason"]
    assert {each["log_strength"] for each in never_lost["checkpoints"]} == {None}
    assert running.http.get("/v1/duels?reference=z").status_code == 422


def test_judges_are_told_apart_and_what_is_no_duel_is_counted(running: Running, tell: Tell) -> None:
    again = prefers("x", "y", "tie", "ann")
    tell(
        served("x", "a"), served("y", "b"), served("z", "a"),
        again, again,
        prefers("x", "z", "first", "ann"),
        prefers("x", "gone", "first", "ann"),
        prefers("x", "y", "better", "bob"),
        prefers("x", "y", "second", "gpt", rater_source="model"),
    )  # fmt: skip
    found = duels_of(running)
    assert found["duels"] == 1
    assert found["left_out"] == {"not_stored": 1, "same_checkpoint": 1, "unknown_word": 1}
    assert duels_of(running, judged_by="model")["duels"] == 1
    assert duels_of(running, as_of="2025-01-01T00:00:00Z")["duels"] == 0


def test_the_terminal_shows_the_ranking_and_json_the_answer(
    running: Running, tell: Tell, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = []
    for number, outcome in enumerate(["first", "second", "tie", "first", "both_bad"] * 20):
        ends = ("a", "b") if number % 2 else ("b", "a")
        facts += [served(f"{number}f", ends[0]), served(f"{number}s", ends[1])]
        facts.append(prefers(f"{number}f", f"{number}s", outcome, f"u{number % 25}"))
    tell(*facts)
    key = running.http.headers["Authorization"].removeprefix("Bearer ")
    environment = {"THUMBWHEEL_KEY": key, "THUMBWHEEL_URL": running.url}
    running.until_stored()
    assert main(["duels"], environment) == 0
    shown = capsys.readouterr().out
    assert "100 duels, 25 raters" in shown
    assert "shown first" in shown
    assert main(["duels", "--json"], environment) == 0
    assert json.loads(capsys.readouterr().out)["duels"] == 100
