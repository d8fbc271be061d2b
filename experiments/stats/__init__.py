"""Pure statistics of merged moments: no I/O, no clock, no randomness."""

from experiments.stats.effect import Effect, student_p
from experiments.stats.moments import Moments
from experiments.stats.ratio import FEW_UNITS, ratio_test, relative_interval
from experiments.stats.sequential import BURN_IN_UNITS, AnytimeResult, confidence_sequence
from experiments.stats.srm import MIN_EXPECTED, SRM_ALARM, SRMResult, srm_test

__all__ = [
    "BURN_IN_UNITS",
    "FEW_UNITS",
    "MIN_EXPECTED",
    "SRM_ALARM",
    "AnytimeResult",
    "Effect",
    "Moments",
    "SRMResult",
    "confidence_sequence",
    "ratio_test",
    "relative_interval",
    "srm_test",
    "student_p",
]
