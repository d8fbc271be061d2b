"""Continue's own files, `~/.continue/dev_data/0.2.0/*.jsonl`: the reports that it also posts."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from urllib.parse import quote

from ingest._continue import facts_of
from ingest._dev_event import EVENTS, DevEvent
from ingest.errors import BadInput
from ingest.events import SCHEMA_URI, Consent
from ingest.importers._history import Summary, Tallies, id_of
from ingest.importers._lines import Line, Lines, checked
from ingest.importers._reading import NotAHistory

ORIGIN = "continue"


@dataclass(frozen=True)
class ContinueFile:
    """A file whose every line was read; nothing has been sent yet."""

    summary: Summary
    lines: Lines

    def events(self, *, consent: Consent, user: str = "unknown") -> Iterator[dict[str, Any]]:
        """All facts, in the order of the lines, and one import.recorded at the end.

        At consent `metrics` nothing that a person or a model wrote is in them. Without `user` they
        are of the user that Continue names.

        Raises: BadInput for an unknown consent level or an empty user.
        """
        if not user.strip():
            raise BadInput.of("user", "is empty; say whose reports these are")
        return self._events(checked(consent), user)

    def _events(self, consent: Consent, user: str) -> Iterator[dict[str, Any]]:
        whose = None if user == "unknown" else user
        for report in _reports(self.lines, self.summary.counts["reports"]):
            yield from facts_of(replace(report, consent=consent, user=whose))
        summary = self.summary
        yield {
            "specversion": "1.0",
            "id": id_of(ORIGIN, "import.recorded", summary.file_sha256),
            "source": f"/import/{ORIGIN}/{quote(user, safe='@+', errors='surrogatepass')}",
            "type": "thumbwheel.import.recorded.v1",
            "dataschema": SCHEMA_URI,
            "consent": consent,
            "user": user,
            "data": {
                "origin": ORIGIN,
                "file_sha256": summary.file_sha256,
                "counts": summary.counts,
                "not_understood": {
                    why: tally.count for why, tally in summary.not_understood.items()
                },
            },
        }


def continue_file(lines: Lines) -> ContinueFile:
    """A file of Continue's reports, every line of it read once.

    Raises: BadInput, NotAHistory naming the file and the line.
    """
    unclear, understood = Tallies(), Tallies()
    reports = facts = 0
    for line in lines:
        report = _report(line, lines)
        reports += 1
        if report is None:
            unclear.add(line.raw.problem or "is no report", line.number)
        else:
            understood.add(report.name, line.number)
            facts += len(facts_of(report))
    counts = {"reports": reports, "events": facts + 1}
    return ContinueFile(
        Summary(ORIGIN, lines.path, lines.sha256, counts, understood, unclear, ()), lines
    )


def _reports(lines: Lines, most: int) -> Iterator[DevEvent]:
    """Equal reports without a time are told apart by how many came before."""
    before: Counter[str] = Counter()
    for line in islice(lines, most):  # the file may have grown since it was checked
        report = _report(line, lines)
        if report is None:
            continue
        if report.stamp is None:
            before[report.key] += 1
            report = replace(report, repeat=before[report.key] - 1)
        yield report


def _report(line: Line, lines: Lines) -> DevEvent | None:
    """None where the line is JSON that no reader of it would understand in the same way."""
    if line.raw.problem:
        return None
    name = line.fields.get("eventName") or lines.path.name.partition(".")[0]
    if not isinstance(name, str) or ("eventName" not in line.fields and name not in EVENTS):
        raise NotAHistory(
            f"{lines.path}: line {line.number} has no 'eventName', and the file is not named after"
            f" an event of Continue ({', '.join(sorted(EVENTS))}); give a file of"
            " ~/.continue/dev_data as Continue wrote it"
        )
    return DevEvent(name, line.fields, "training")
