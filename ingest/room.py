"""This room, opened: its parts, and what it adds to an app. The same alone and in one process."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter
from sqlalchemy import Engine

from ingest._blobs import Blobs
from ingest._dead_letters import DeadLetters
from ingest._doors_api import DoorsApi
from ingest._erasure import Erasures
from ingest._erasure_api import ErasureApi
from ingest._feedback_api import AskApi, FeedbackApi, HistoryApi
from ingest._feedback_history import FeedbackHistory
from ingest._links import Links
from ingest._links_api import LinksApi
from ingest._listing import Listing
from ingest._operations_api import OperationsApi
from ingest._pseudonyms import Pseudonyms
from ingest._refine import Refine
from ingest._sampler import Sampler
from ingest._secret_file import secret_of
from ingest._secrets import Secrets
from ingest._upkeep import Upkeep
from ingest.api import IngestApi
from ingest.app import Meter
from ingest.control import open_control, reading
from ingest.drain import GROUP
from ingest.feedback import Feedback
from ingest.intake import Intake
from ingest.keys import Keys
from ingest.log import Log, open_log
from ingest.settings import Settings
from ingest.store import Store
from ingest.watch import meters_of


@dataclass(frozen=True)
class Ingest:
    settings: Settings
    log: Log
    store: Store
    control: Engine
    keys: Keys
    refine: Refine
    intake: Intake
    ratings: FeedbackHistory
    erasures: Erasures
    doors: DoorsApi

    @classmethod
    @contextmanager
    def open(cls, settings: Settings) -> Iterator["Ingest"]:
        """Everything is closed at the end, in reverse order. Raises: Unavailable, BadInput."""
        with ExitStack() as stack:
            log = open_log(settings.log)
            stack.callback(log.close)
            store = Store.open(settings.store, cluster=settings.cluster, keep=settings.keep)
            stack.callback(store.close)
            control = open_control(settings.control)
            stack.callback(control.dispose)
            yield cls.of(settings, log, store, control)

    @classmethod
    def of(cls, settings: Settings, log: Log, store: Store, control: Engine) -> "Ingest":
        """The room on parts that are open already. Raises: BadInput, Unavailable."""
        pseudonyms = Pseudonyms.open(settings.pseudonyms, data=settings.data)
        blobs = Blobs.open(settings.blobs)
        refine = Refine(pseudonyms, Secrets(), blobs)
        store.restore = refine.blobs.restore
        intake = Intake(log, store, refine, pseudonyms.of_source)
        keys = Keys(control, settings.rate)
        return cls(
            settings=settings,
            log=log,
            store=store,
            control=control,
            keys=keys,
            doors=DoorsApi(intake, keys),
            refine=refine,
            intake=intake,
            ratings=FeedbackHistory(store),
            erasures=Erasures(control, store, log, blobs, settings, pseudonym=pseudonyms.of),
        )

    def routers(self) -> list[APIRouter]:
        feedback = Feedback(self.control, self.intake)
        links = Links(secret_of(Path(self.settings.secret)))
        sampler = Sampler(self.intake, self.settings.ask_share)
        return [
            IngestApi(self.intake, self.store, self.keys).router(),
            FeedbackApi(feedback, self.keys).router(),
            LinksApi(feedback, links, self.keys).router(),
            HistoryApi(self.ratings, self.keys).router(),
            AskApi(sampler, self.keys).router(),
            self.doors.router(),
            ErasureApi(self.erasures, self.keys).router(),
            OperationsApi(self.keys, self.letters, Listing(self.store)).router(),
        ]

    def upkeep(self) -> Upkeep:
        """What runs beside the requests, in a thread of its own."""
        sole = self.settings.store.startswith("chdb:")
        return Upkeep(self.log, self.store, self.intake, self.refine.blobs, sole)

    @property
    def letters(self) -> DeadLetters:
        return DeadLetters(self.store, self.intake)

    def checks(self) -> Mapping[str, Callable[[], object]]:
        """What `/readyz` asks."""
        return {
            "log": lambda: self.log.lag(GROUP),
            "store": lambda: self.store.rows("SELECT 1"),
            "control": self._control_answers,
        }

    def meters(self) -> list[Meter]:
        return [
            *meters_of(
                self.intake,
                self.log,
                letters=self.letters,
                feedback=self.ratings,
                redactions=self.refine.secrets.counts,
            ),
            Meter(
                "thumbwheel_spans",
                "OTLP spans since start: taken, refused, or left out for having nothing of gen_ai.",
                lambda: dict(self.doors.spans),
                label="result",
            ),
        ]

    def _control_answers(self) -> None:
        with reading(self.control) as connection:
            connection.exec_driver_sql("SELECT 1")
