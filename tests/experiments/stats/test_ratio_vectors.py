"""The delta method's published numbers."""

from experiments.stats import Moments, relative_interval, student_p
from tests.experiments.vectors import agrees, vector


def from_sums(arm: dict[str, float]) -> Moments:
    n, top, bottom = int(arm["n"]), arm["num_sum"], arm["den_sum"]
    return Moments(
        n=n,
        mean=top / n,
        var=(arm["num_ss"] - top**2 / n) / (n - 1),
        den_mean=bottom / n,
        den_var=(arm["den_ss"] - bottom**2 / n) / (n - 1),
        cov=(arm["cross"] - top * bottom / n) / (n - 1),
    )


def test_the_published_lift_of_a_ratio_holds() -> None:
    asked = vector("ratio-delta-1")["input"]
    control, treatment = from_sums(asked["control"]), from_sums(asked["treatment"])
    lift = relative_interval(control, treatment)
    assert lift.estimate is not None
    assert lift.std_error is not None
    assert lift.df is not None
    found = {
        "control_mean": control.mean / control.den_mean,
        "treatment_mean": treatment.mean / treatment.den_mean,
        "rel": lift.estimate,
        # The source's p is that of the lift's own error; ours is the difference's.
        "p": student_p(lift.estimate / lift.std_error, lift.df),
    }
    agrees("ratio-delta-1", found)
