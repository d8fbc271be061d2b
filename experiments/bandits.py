"""Bandits: weights that follow the facts from batch to batch, and answers that hold all the same.

A batch is a version of the experiment: the units first exposed while its weights were in force. They
keep their arm, so that every fact knows the share it was dealt with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import sqrt
from typing import Any

from experiments import _batch_sql as batch_sql
from experiments._arms import UnitColumns, unit_columns
from experiments._exact import Exact
from experiments._plan import Plan as Columns
from experiments._plan import listed, micros
from experiments.allocations import Adaptive
from experiments.metrics import METRICS, Metric
from experiments.plans import Experiment
from experiments.registry import Experiments
from experiments.scan import newest_fact
from experiments.stats import (
    MIN_UNITS,
    BatchMoments,
    Effect,
    Moments,
    adaptive_effect,
    bandit_weights,
    holm,
    srm_batches,
)
from experiments.stats.adaptive import Method
from experiments.stats.srm import SRM_ALARM, SRMResult
from ingest.errors import Conflict
from ingest.store import Store

_NOBODY = Moments(0, 0.0, 0.0)


@dataclass(frozen=True)
class Batch:
    """Units first exposed under these shares; `counted` are those whose window is over."""

    version: int
    began_at: str | None
    shares: Mapping[str, float]
    units: Mapping[str, int]
    counted: Mapping[str, int]


@dataclass(frozen=True)
class ArmEffect:
    """An arm against the control over all batches; where `reason` is not None there is no number."""

    variant: str
    control: str
    effect: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    adjusted_p: float | None
    method: str
    reason: str | None


@dataclass(frozen=True)
class BanditReport:
    """`srm` compares every batch with its own shares. Means of arms are not told: they are biased,
    since an arm that starts badly gets too few units to recover.
    """

    experiment: dict[str, Any]
    as_of: str
    metric: Metric
    batches: tuple[Batch, ...]
    srm: SRMResult
    srm_alarm: bool
    newest_fact: str | None
    simulated: bool
    alpha: float
    comparisons: tuple[ArmEffect, ...]


@dataclass(frozen=True)
class _Read:
    """One batch as the facts have it."""

    batch: Batch
    moments: Mapping[str, Moments]
    simulated: bool


@dataclass(frozen=True)
class _Belief:
    """Of an arm's mean."""

    mean: float
    sd: float


def bandit_report(
    store: Store,
    experiments: Experiments,
    key: str,
    *,
    as_of: datetime | None = None,
    method: Method = "bols",
) -> BanditReport:
    """The arms compared batch by batch, from facts received until `as_of` (now).

    One look is planned: the p does not hold for who looks often and stops when it is small.

    Raises: NotFound; Conflict if it is no bandit or has not begun; Unavailable.
    """
    experiment = experiments.get(key)
    metric, at = METRICS[_how(experiment).metric], as_of or datetime.now(UTC)
    read = _batches(store, experiments, experiment, at)
    arms = [each.key for each in experiment.plan.variants]
    srm = srm_batches(
        [[each.batch.units[arm] for arm in arms] for each in read],
        [[each.batch.shares[arm] for arm in arms] for each in read],
    )
    newest = newest_fact(store, at)
    return BanditReport(
        experiment=experiment.public(),
        as_of=at.isoformat(),
        metric=metric,
        batches=tuple(each.batch for each in read),
        srm=srm,
        srm_alarm=srm.p_value is not None and srm.p_value < SRM_ALARM,
        newest_fact=newest.isoformat() if newest else None,
        simulated=any(each.simulated for each in read),
        alpha=experiment.plan.alpha,
        comparisons=_compared(read, arms, method, experiment.plan.alpha),
    )


def reweigh(store: Store, experiments: Experiments, key: str) -> Experiment:
    """The next batch has begun, with shares by what is known of the arms now.

    Raises: NotFound; Conflict if it is no running bandit, the batch is not full, an arm is known from
        fewer than 100 units, or an arm's units do not differ; Unavailable.
    """
    experiment = experiments.get(key)
    how = _how(experiment)
    if experiment.status != "running":
        raise Conflict(f"{key!r} is {experiment.status}; only a running bandit can be reweighed")
    read = _batches(store, experiments, experiment, datetime.now(UTC))
    new = sum(read[-1].batch.counted.values())
    if new < how.batch_units:
        raise Conflict(f"the batch has {new} of {how.batch_units} units; wait for the others")
    pooled = _pooled(read)
    for arm, moments in pooled.items():
        if moments.n < MIN_UNITS:
            least = f"{arm!r} has {moments.n} units; weights first move at {MIN_UNITS} of every arm"
            raise Conflict(f"{least}; wait for the others")
        if not moments.var > 0:
            raise Conflict(
                f"{how.metric} is the same for all units of {arm!r}; wait until it varies"
            )
    shares = bandit_weights(
        [_Belief(each.mean, sqrt(each.var / each.n)) for each in pooled.values()],
        policy=how.policy,
        floor=how.floor,
        lower_is_better=METRICS[how.metric].good == "down",
    )
    return experiments.reweigh(key, dict(zip(pooled, shares.tolist(), strict=True)), experiment.version)  # fmt: skip


def _how(experiment: Experiment) -> Adaptive:
    key, how = experiment.plan.key, experiment.plan.allocation
    if not isinstance(how, Adaptive):
        raise Conflict(f"{key!r} is no bandit; see GET /v1/experiments/{key}/report")
    if experiment.status == "draft":
        raise Conflict(f"{key!r} has no batch yet; start it")
    return how


def _batches(
    store: Store, experiments: Experiments, experiment: Experiment, at: datetime
) -> list[_Read]:
    """Of the run that goes on, or went last, the first batch first. One scan of the facts."""
    key, versions = experiment.plan.key, range(experiment.run_version, experiment.version)
    run = [*(experiments.get(key, version) for version in versions), experiment]
    metric, plan = METRICS[_how(experiment).metric], Columns()
    columns = unit_columns(plan, metric, 0, matured_at=micros(at))
    levels = plan.levels(batch_sql.EXPOSURES, batch_sql.OWNERS, unit=experiment.plan.unit)
    last = batch_sql.BATCHES.format(
        before=listed(columns.before),
        counts=columns.counts,
        top=columns.numbers[0],
        below=columns.numbers[1],
    )
    rows = store.rows(
        levels + last,
        **plan.bound.values,
        key=key,
        version=experiment.run_version,
        until=experiment.version,
        as_of=at,
    )
    return [
        _read(each, {row["arm"]: row for row in rows if row["batch"] == each.version}, columns)
        for each in run
    ]


def _read(batch: Experiment, rows: Mapping[str, Mapping[str, Any]], columns: UnitColumns) -> _Read:
    spec = batch.spec
    scales = columns.scales[:2]
    moments = {
        each.key: Exact(int(row["counted"]), row["sums"], row["products"], scales).moments(0, 1)
        if (row := rows.get(each.key))
        else _NOBODY
        for each in spec.variants
    }
    described = Batch(
        version=batch.version,
        began_at=batch.phase_started_at,
        shares={each.key: each.weight / sum(spec.weights) for each in spec.variants},
        units={arm: int(rows[arm]["n"]) if arm in rows else 0 for arm in moments},
        counted={arm: each.n for arm, each in moments.items()},
    )
    return _Read(described, moments, any(row["simulated"] for row in rows.values()))


def _pooled(read: Sequence[_Read]) -> dict[str, Moments]:
    """Each arm over all batches: what the next weights go by, and no test does."""
    total = dict(read[0].moments)
    for each in read[1:]:
        total = {arm: total[arm] + moments for arm, moments in each.moments.items()}
    return {arm: _linear(moments) for arm, moments in total.items()}


def _linear(moments: Moments) -> Moments:
    """A ratio as the mean it is near to: that of (Y - RX) / X̄ about R, the delta method's variance.

    An arm whose units have nothing below the line says nothing.
    """
    below = moments.den_mean
    if not moments.n or not below:
        return _NOBODY
    ratio = moments.mean / below
    spread = moments.var - 2 * ratio * moments.cov + ratio**2 * moments.den_var
    return Moments(moments.n, ratio, max(spread, 0.0) / below**2)


def _compared(
    read: Sequence[_Read], arms: Sequence[str], method: Method, alpha: float
) -> tuple[ArmEffect, ...]:
    # A batch that nobody has come into yet is none: that follows from no fact.
    filled = [each for each in read if any(each.batch.counted.values())] or read[:1]
    control, *others = arms
    effects = {
        arm: adaptive_effect(
            [_pair(each, control, arm) for each in filled], method=method, alpha=alpha
        )
        for arm in others
    }
    adjusted = holm(each.p_value for each in effects.values()) if len(others) > 1 else [None]
    return tuple(
        _said(each, arm, control, p_value)
        for (arm, each), p_value in zip(effects.items(), adjusted, strict=True)
    )


def _pair(read: _Read, control: str, treatment: str) -> BatchMoments:
    shares = read.batch.shares
    linear = {arm: _linear(moments) for arm, moments in read.moments.items()}
    return BatchMoments(
        linear[control],
        linear[treatment],
        shares[control],
        shares[treatment],
        units=sum(each.n for each in linear.values()),
    )


def _said(effect: Effect, arm: str, control: str, adjusted_p: float | None) -> ArmEffect:
    return ArmEffect(
        variant=arm,
        control=control,
        effect=effect.estimate,
        interval=effect.ci,
        p_value=effect.p_value,
        adjusted_p=adjusted_p,
        method=effect.method,
        reason=effect.reason,
    )
