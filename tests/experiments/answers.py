"""What a test asks of an effect that must have an answer."""

from experiments.stats import Effect


def answered(effect: Effect) -> tuple[float, float, float, tuple[float, float]]:
    """Its estimate, standard error, p and interval."""
    assert effect.reason is None
    assert effect.estimate is not None
    assert effect.std_error is not None
    assert effect.p_value is not None
    assert effect.ci is not None
    return effect.estimate, effect.std_error, effect.p_value, effect.ci
