"""The ledger of a session's edits: which are applied, in which commit, and what an /undo took."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ingest.importers._aider_steps import CommitKind

_SHORT = 7  # letters of a hash that aider prints
_MOST = 256  # edits one formatting commit is tied to; keeps many such commits linear in size


@dataclass(frozen=True)
class Proposed:
    id: str
    path: str
    conversation: str
    turn: str | None
    completion: str | None

    def may_be(self, path: str) -> bool:
        """True where the model may have meant this file: it wrote more, less or none of the path."""
        mine = self.path
        return not mine or mine.endswith(f"/{path}") or path.endswith(f"/{mine}") or mine == path


@dataclass(frozen=True)
class Undo:
    outcome: Literal["reverted", "refused"]
    diffs: tuple[Proposed, ...]
    """Empty where no edit of the session can be meant."""
    tied_by: Literal["commit", "latest"] | None
    """commit: by the hash that was removed. latest: the session's newest edit still standing."""
    commit_kind: CommitKind | None


@dataclass(frozen=True)
class _Commit:
    kind: CommitKind
    diffs: tuple[Proposed, ...]


@dataclass
class Commits:
    """Of the whole file: two aiders may write into it at once, so that the /undo of a commit
    stands under a later header than the commit does. Hashes tell which commit is meant.
    """

    by_sha: dict[str, _Commit] = field(default_factory=dict)
    reverted: set[str] = field(default_factory=set)
    """Ids of edits."""


class Ledger:
    """Follows one session; /undo reaches over a /clear, a commit does not."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits.by_sha
        self._reverted = commits.reverted
        self._standing: list[Proposed] = []
        """Applied edits, oldest first; reverted ones are taken off the end when met."""
        self._uncommitted: dict[str, Proposed] = {}
        self._latest: tuple[Proposed, ...] = ()

    def forget(self) -> None:
        """A new conversation: edits of the old one belong to none of its commits."""
        self._uncommitted = {}
        self._latest = ()

    def apply(self, proposed: Proposed) -> None:
        self._standing.append(proposed)
        self._uncommitted[proposed.id] = proposed

    def commit(self, sha: str, kind: CommitKind, of_turn: list[Proposed]) -> tuple[Proposed, ...]:
        """The edits that a commit holds: none for the developer's own changes.

        An edit commit takes what its turn applied; /commit takes all that is not committed yet;
        aider's own formatting commit is tied to the edits of the commit before it.
        """
        if kind == "lint":
            self._commits[sha[:_SHORT]] = _Commit(kind, self._latest[:_MOST])
            return self._latest[:_MOST]
        held: tuple[Proposed, ...] = ()
        if kind == "edit":
            held = _once(of_turn)
            of_turn.clear()
        elif kind == "command":
            held = tuple(self._uncommitted.values())
        for proposed in held:
            self._uncommitted.pop(proposed.id, None)
        if kind != "dirty":
            self._latest = held
        self._commits[sha[:_SHORT]] = _Commit(kind, held)
        return held

    def undo(self, sha: str | None) -> Undo:
        """What an /undo meant; `sha` is the commit it removed, None where it removed none."""
        commit = None if sha is None else self._commits.pop(sha[:_SHORT], None)
        if commit is not None:
            if commit.kind != "lint":  # undone formatting leaves the edit itself standing
                self._reverted.update(proposed.id for proposed in commit.diffs)
            tied_by: Literal["commit", "latest"] | None = "commit" if commit.diffs else None
            return Undo("reverted", commit.diffs, tied_by, commit.kind)
        latest = self._newest_standing()
        if sha is not None:
            self._reverted.update(proposed.id for proposed in latest)
        outcome: Literal["reverted", "refused"] = "refused" if sha is None else "reverted"
        return Undo(outcome, latest, "latest" if latest else None, None)

    def _newest_standing(self) -> tuple[Proposed, ...]:
        while self._standing and self._standing[-1].id in self._reverted:
            self._standing.pop()
        return tuple(self._standing[-1:])


def _once(proposed: Sequence[Proposed]) -> tuple[Proposed, ...]:
    return tuple({one.id: one for one in proposed}.values())
