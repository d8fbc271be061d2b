"""The life of a proposed edit: proposed, shown, decided, edited, surviving, reverted, committed."""

from typing import Literal

from pydantic import Field

from ingest._facts import ContentText, Count, Data, Ratio, Seconds


class Hunk(Data):
    id: str
    lines_added: Count | None = None
    lines_removed: Count | None = None
    u16_added: Count | None = None
    u16_removed: Count | None = None
    before: ContentText | None = None
    after: ContentText | None = None


class DiffProposed(Data):
    diff: str = Field(alias="diff.id")
    turn: str | None = Field(None, alias="turn.id")
    completion: str | None = Field(None, alias="completion.id")
    file: str | None = Field(None, alias="file.id")
    """HMAC of the workspace-relative path; the path itself is content."""
    path: ContentText | None = Field(None, alias="file.path")
    extension: str | None = Field(None, alias="file.extension")
    language: str | None = Field(None, alias="thumbwheel.language_id")
    hunks: tuple[Hunk, ...] = ()
    base_sha256: str | None = None
    errors_before: Count | None = None
    errors_after: Count | None = None
    auto_applied: bool | None = None
    before: ContentText | None = None
    after: ContentText | None = None


class DiffShown(Data):
    diff: str = Field(alias="diff.id")
    visible_s: Seconds | None = None
    hunks_in_viewport: Count | None = None


class DiffDecided(Data):
    diff: str = Field(alias="diff.id")
    turn: str | None = Field(None, alias="turn.id")
    scope: Literal["hunk", "file", "all"] = "file"
    outcome: Literal[
        "accepted", "rejected", "partially_accepted", "superseded", "auto_applied", "expired"
    ]
    actor: Literal["user", "policy"] = "user"
    decision_s: Seconds | None = None
    """From first visible, focus time only."""
    edited_before_decision: Ratio | None = None


class DiffFirstEdit(Data):
    diff: str = Field(alias="diff.id")
    time_to_edit_s: Seconds | None = None
    time_to_first_keystroke_s: Seconds | None = None
    origin: Literal[
        "typed", "paste", "undo", "redo", "formatter", "agent", "extension", "disk", "unknown"
    ] = "unknown"
    overlap_u16: Count | None = None


class DiffSurvival(Data):
    diff: str = Field(alias="diff.id")
    checkpoint_s: Seconds
    late_s: Seconds | None = None
    kept_u16: Count | None = None
    candidate_u16: Count | None = None
    deleted_agreed_u16: Count | None = None
    kept_ratio: Ratio | None = None
    """None, never 1, where it is undefined."""
    recall_ratio: Ratio | None = None
    four_gram: Ratio | None = None
    no_revert: Ratio | None = None
    state: Literal[
        "observed", "file_deleted", "renamed", "branch_changed", "too_large",
        "closed_read_from_disk", "unobserved",
    ] = "observed"  # fmt: skip
    formatter_ran: bool | None = None


class DiffReverted(Data):
    diff: str | None = Field(None, alias="diff.id")
    """None where the undo could not be tied to an edit of ours."""
    turn: str | None = Field(None, alias="turn.id")
    by: Literal["undo", "editor_discard", "checkpoint", "vcs_checkout", "vcs_revert", "manual"]
    outcome: Literal["reverted", "refused"] = "reverted"
    """refused: the developer asked for it and the tool could not do it."""
    after_s: Seconds | None = None
    reverted_ratio: Ratio | None = None
    redone: bool | None = None


class DiffCommitted(Data):
    diffs: tuple[str, ...] = Field((), alias="diff.ids")
    turn: str | None = Field(None, alias="turn.id")
    after_s: Seconds | None = None
    kept_ratio: Ratio | None = None
    commit_kind: str | None = None
    """edit, lint, dirty (the developer's own changes) or command."""
    sha: ContentText | None = Field(None, alias="commit.sha")
    message: ContentText | None = Field(None, alias="commit.message")
