"""Arms that units keep although weights or their own attributes change. Written once, never moved."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sqlalchemy import Column, Engine, Float, Integer, String, Table, delete, insert, select
from sqlalchemy.exc import IntegrityError

from experiments.layers import UnitType
from ingest.control import METADATA, reading, utc_now, writing

_STICKY = Table(
    "sticky_arms",
    METADATA,
    Column("unit_type", String, primary_key=True),
    Column("unit", String, primary_key=True),
    Column("experiment", String, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("variant", String, nullable=False),
    Column("propensity", Float, nullable=False),
    Column("kept_at", String, nullable=False),
)


class Place(NamedTuple):
    """One unit in one experiment."""

    unit_type: UnitType
    unit: str
    experiment: str


class Kept(NamedTuple):
    """The arm, the probability it was dealt with, and when (ISO 8601, UTC)."""

    variant: str
    propensity: float
    kept_at: str


class StickyStore(Protocol):
    """Arms by place and version of the experiment."""

    def find(self, place: Place) -> Mapping[int, Kept]:
        """What is kept for the unit, by version. Raises: Unavailable."""

    def keep(self, place: Place, version: int, *, variant: str, propensity: float) -> Kept:
        """What is kept from now on: the first arm ever given, whatever is given later.

        Raises: Unavailable.
        """

    def forget(self, unit_type: UnitType, unit: str) -> None:
        """Nothing is kept of the unit. Raises: Unavailable."""


@dataclass
class MemorySticky:
    """Arms in this process."""

    now: Callable[[], str] = utc_now
    _kept: dict[Place, dict[int, Kept]] = field(default_factory=dict, init=False)

    def find(self, place: Place) -> Mapping[int, Kept]:
        return self._kept.get(place, {})

    def keep(self, place: Place, version: int, *, variant: str, propensity: float) -> Kept:
        versions = self._kept.setdefault(place, {})
        return versions.setdefault(version, Kept(variant, propensity, self.now()))

    def forget(self, unit_type: UnitType, unit: str) -> None:
        for place in [each for each in self._kept if each[:2] == (unit_type, unit)]:
            del self._kept[place]


@dataclass(frozen=True)
class ControlSticky:
    """Arms in the control database, for all processes that share it."""

    control: Engine
    now: Callable[[], str] = utc_now

    def find(self, place: Place) -> Mapping[int, Kept]:
        question = select(_STICKY).where(
            _STICKY.c.unit_type == place.unit_type,
            _STICKY.c.unit == place.unit,
            _STICKY.c.experiment == place.experiment,
        )
        with reading(self.control) as connection:
            rows = connection.execute(question)
            return {row.version: Kept(row.variant, row.propensity, row.kept_at) for row in rows}

    def keep(self, place: Place, version: int, *, variant: str, propensity: float) -> Kept:
        given = Kept(variant, propensity, self.now())
        try:
            with writing(self.control) as connection:
                row = {**place._asdict(), "version": version, **given._asdict()}
                connection.execute(insert(_STICKY).values(row))
        except IntegrityError:
            # Another request was first: its arm is the unit's, also for this one.
            return self.find(place)[version]
        return given

    def forget(self, unit_type: UnitType, unit: str) -> None:
        with writing(self.control) as connection:
            connection.execute(
                delete(_STICKY).where(_STICKY.c.unit_type == unit_type, _STICKY.c.unit == unit)
            )


@dataclass(frozen=True)
class Unchanged:
    """Another store's arms, to ask what a unit would get: nothing new is kept."""

    store: StickyStore

    def find(self, place: Place) -> Mapping[int, Kept]:
        return self.store.find(place)

    def keep(self, place: Place, version: int, *, variant: str, propensity: float) -> Kept:
        return self.store.find(place).get(version, Kept(variant, propensity, ""))

    def forget(self, unit_type: UnitType, unit: str) -> None:
        self.store.forget(unit_type, unit)
