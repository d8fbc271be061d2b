"""What a report says of thumbs beside their effect: who rates, and what silence may hide."""

from experiments._answers import Answer, Reading, answer, equivalent_alpha
from experiments.findings import Feedback
from experiments.metrics import ArmMoments, Metric
from experiments.stats import FeedbackCounts, feedback_effect


def thumbs(
    reading: Reading, metric: Metric, control: ArmMoments, treatment: ArmMoments
) -> Feedback | None:
    """Response by arm and the bounds; None of what is no thumb, of the response itself,
    and where planned looks have not begun.

    Whether response differs is read as the plan reads everything: at every look, if it says so.
    """
    counts = [
        sample.feedback for arm in (control, treatment) if (sample := arm.samples.get(metric.key))
    ]
    if metric.score == "response" or len(counts) < 2 or not (counts[0] and counts[1]):
        return None
    pair, units = (counts[0], counts[1]), max(control.units + treatment.units, 1)
    response = feedback_effect(*pair, alpha=reading.alpha).response_rate
    moved = answer(reading, response, units, shared=False)
    if moved.interval is None and response.reason is None:
        return None
    alpha = reading.alpha
    if reading.plan.reading != "fixed":
        # A bound's interval may use one tail only; half of the looks' rate makes even that one
        # as far from its bound as the looks' own intervals are from their estimates.
        alpha = equivalent_alpha(response, moved.interval) / 2
    found = feedback_effect(*pair, bounds="manski", alpha=alpha)
    return Feedback(
        response=(_response(pair[0]), _response(pair[1])),
        response_interval=moved.interval,
        response_differs=_differs(moved),
        approval=found.approval_by_arm,
        manski=found.bounds,
        lee=feedback_effect(*pair, bounds="lee", alpha=alpha).bounds,
        gamma=found.sensitivity.gamma,
    )


def _response(arm: FeedbackCounts) -> float | None:
    up, down, completions = arm.mean
    return (up + down) / completions if completions > 0 else None


def _differs(moved: Answer) -> bool:
    if moved.interval is None or moved.reason:
        return False
    return not moved.interval[0] <= 0 <= moved.interval[1]
