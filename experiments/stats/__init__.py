"""Pure statistics of merged moments: no I/O, no clock, no randomness.

SciPy's parts are named in full (`scipy.special.ndtr`): it loads each when it is first used, and a
server starts without any.
"""

from experiments.stats._asked import Alternative
from experiments.stats._bounds import Bounds, Sensitivity
from experiments.stats._wald import WaldTest
from experiments.stats.adaptive import BatchMoments, adaptive_effect
from experiments.stats.bandit import (
    MIN_UNITS,
    NormalPosterior,
    bandit_weights,
    best_arm_probabilities,
)
from experiments.stats.bayes import (
    ExpectedLoss,
    NormalPrior,
    Posterior,
    beta_binomial,
    posterior,
)
from experiments.stats.clusters import cr2_test
from experiments.stats.cuped import PRE_ALARM, Cuped, PreMoments, cuped, pre_imbalance
from experiments.stats.effect import Effect, student_p
from experiments.stats.feedback import FeedbackCounts, FeedbackEffect, feedback_effect
from experiments.stats.group_sequential import (
    Boundaries,
    classical_bounds,
    crossing_probability,
    group_sequential_bounds,
)
from experiments.stats.interaction import Interaction, SegmentEffect, interaction_test
from experiments.stats.moments import Moments
from experiments.stats.msprt import msprt
from experiments.stats.multiplicity import adjust_pvalues, dunnett, holm
from experiments.stats.novelty import Novelty, day_correlation, novelty_test
from experiments.stats.paired import (
    PairedCounts,
    clustered_mcnemar,
    clustered_sign_test,
    mcnemar,
    sign_test,
)
from experiments.stats.pairwise import Duels, Ranking, bradley_terry
from experiments.stats.power import (
    Plan,
    minimum_detectable_effect,
    proportion_n,
    proportion_power,
    sample_size,
    t_test_n,
    t_test_power,
)
from experiments.stats.proportions import proportion_test, wilson_interval
from experiments.stats.quantiles import (
    QuantileSummary,
    bound_levels,
    cluster_factor,
    needed_events,
    quantile_test,
)
from experiments.stats.ratio import FEW_UNITS, ratio_test, relative_interval
from experiments.stats.response import AdjustedApproval, RatedTurns, adjusted_approval
from experiments.stats.sequential import (
    BURN_IN_CONVERSIONS,
    BURN_IN_UNITS,
    AnytimeResult,
    EValue,
    NormalMixture,
    confidence_sequence,
)
from experiments.stats.srm import (
    MIN_EXPECTED,
    SRM_ALARM,
    SRMResult,
    srm_batches,
    srm_sequential,
    srm_test,
)
from experiments.stats.stopping import (
    Look,
    StageWise,
    conditional_power,
    repeated_interval,
    stage_wise,
)
from experiments.stats.switchback import (
    block_means,
    switchback_effect,
    switchback_test,
)
from experiments.stats.welch import log_p_value, noninferiority_test, welch_test
from experiments.stats.winsorize import Winsorized, winsorize

__all__ = [
    "BURN_IN_CONVERSIONS",
    "BURN_IN_UNITS",
    "FEW_UNITS",
    "MIN_EXPECTED",
    "MIN_UNITS",
    "PRE_ALARM",
    "SRM_ALARM",
    "AdjustedApproval",
    "Alternative",
    "AnytimeResult",
    "BatchMoments",
    "Boundaries",
    "Bounds",
    "Cuped",
    "Duels",
    "EValue",
    "Effect",
    "ExpectedLoss",
    "FeedbackCounts",
    "FeedbackEffect",
    "Interaction",
    "Look",
    "Moments",
    "NormalMixture",
    "NormalPosterior",
    "NormalPrior",
    "Novelty",
    "PairedCounts",
    "Plan",
    "Posterior",
    "PreMoments",
    "QuantileSummary",
    "Ranking",
    "RatedTurns",
    "SRMResult",
    "SegmentEffect",
    "Sensitivity",
    "StageWise",
    "WaldTest",
    "Winsorized",
    "adaptive_effect",
    "adjust_pvalues",
    "adjusted_approval",
    "bandit_weights",
    "best_arm_probabilities",
    "beta_binomial",
    "block_means",
    "bound_levels",
    "bradley_terry",
    "classical_bounds",
    "cluster_factor",
    "clustered_mcnemar",
    "clustered_sign_test",
    "conditional_power",
    "confidence_sequence",
    "cr2_test",
    "crossing_probability",
    "cuped",
    "day_correlation",
    "dunnett",
    "feedback_effect",
    "group_sequential_bounds",
    "holm",
    "interaction_test",
    "log_p_value",
    "mcnemar",
    "minimum_detectable_effect",
    "msprt",
    "needed_events",
    "noninferiority_test",
    "novelty_test",
    "posterior",
    "pre_imbalance",
    "proportion_n",
    "proportion_power",
    "proportion_test",
    "quantile_test",
    "ratio_test",
    "relative_interval",
    "repeated_interval",
    "sample_size",
    "sign_test",
    "srm_batches",
    "srm_sequential",
    "srm_test",
    "stage_wise",
    "student_p",
    "switchback_effect",
    "switchback_test",
    "t_test_n",
    "t_test_power",
    "welch_test",
    "wilson_interval",
    "winsorize",
]
