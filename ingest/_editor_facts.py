"""What the editor sees: sessions, turns, tool calls, completions on screen, votes.

Units: `_s` seconds (double), `_u16` UTF-16 code units (the editor's own offsets), ratios 0 to 1.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictStr

from ingest._facts import Consent, ContentJson, ContentText, Count, Data, Ratio, Seconds


class SessionStarted(Data):
    editor_name: str | None = None
    editor_version: str | None = None
    ui_kind: Literal["desktop", "web", "terminal"] | None = None
    remote_kind: str | None = None
    extension_version: str | None = None
    workspace_trusted: bool | None = None
    telemetry_level: str | None = None
    accessibility_mode: bool | None = None
    other_ai_extensions: tuple[str, ...] = ()
    """Confounders: other assistants that were active beside ours."""
    model: str | None = Field(None, alias="gen_ai.request.model")
    origin: str | None = None
    """Set on imported history: the tool it comes from."""
    arguments: ContentText | None = None
    """The command line of a terminal agent."""


class SessionEnded(Data):
    reason: str | None = None
    active_s: Seconds | None = None


class ConsentChanged(Data):
    from_: Consent | None = Field(None, alias="from")
    to: Consent
    consentver: str | None = None
    surface: str | None = None


class TurnSubmitted(Data):
    conversation: str | None = Field(None, alias="gen_ai.conversation.id")
    turn: str = Field(alias="turn.id")
    index: Count | None = None
    prompt_u16: Count | None = None
    attachments: dict[str, Count] = Field(default_factory=dict)
    trigger: str | None = None
    """typed, followup, regenerate, edit_and_resend, code_action, command."""
    parent_turn: str | None = Field(None, alias="parent_turn.id")
    similarity: Ratio | None = None
    """To the previous prompt; near 1 is a rephrase."""
    prompt: ContentText | None = None


class InferenceCompleted(Data):
    operation: str | None = Field(None, alias="gen_ai.operation.name")
    conversation: str | None = Field(None, alias="gen_ai.conversation.id")
    turn: str | None = Field(None, alias="turn.id")
    completion: str | None = Field(None, alias="completion.id")
    provider: str | None = Field(None, alias="gen_ai.provider.name")
    request_model: str | None = Field(None, alias="gen_ai.request.model")
    response_model: str | None = Field(None, alias="gen_ai.response.model")
    response_id: str | None = Field(None, alias="gen_ai.response.id")
    finish_reasons: tuple[str, ...] = Field((), alias="gen_ai.response.finish_reasons")
    input_tokens: Count | None = Field(None, alias="gen_ai.usage.input_tokens")
    output_tokens: Count | None = Field(None, alias="gen_ai.usage.output_tokens")
    cache_read_tokens: Count | None = Field(None, alias="gen_ai.usage.cache_read.input_tokens")
    reasoning_tokens: Count | None = Field(None, alias="gen_ai.usage.reasoning.output_tokens")
    time_to_first_chunk_s: Seconds | None = Field(None, alias="gen_ai.response.time_to_first_chunk")
    duration_s: Seconds | None = None
    retries: Count | None = None
    error_type: str | None = Field(None, alias="error.type")
    server_address: str | None = Field(None, alias="server.address")
    cost_usd: float | None = None
    tokens_rounded: bool = False
    """True where the source gives token counts in rounded thousands."""
    system_instructions: ContentJson | None = Field(None, alias="gen_ai.system_instructions")
    input_messages: ContentJson | None = Field(None, alias="gen_ai.input.messages")
    output_messages: ContentJson | None = Field(None, alias="gen_ai.output.messages")


class TurnEnded(Data):
    conversation: str | None = Field(None, alias="gen_ai.conversation.id")
    turn: str = Field(alias="turn.id")
    outcome: Literal["ok", "error", "cancelled"] | None = None
    time_to_cancel_s: Seconds | None = None
    visible_u16_at_cancel: Count | None = None
    llm_calls: Count | None = None
    tool_calls: Count | None = None
    duration_s: Seconds | None = None
    user_left_during: bool | None = None


class ToolCalled(Data):
    conversation: str | None = Field(None, alias="gen_ai.conversation.id")
    turn: str | None = Field(None, alias="turn.id")
    name: str | None = Field(None, alias="gen_ai.tool.name")
    kind: str | None = Field(None, alias="gen_ai.tool.type")
    call: str | None = Field(None, alias="gen_ai.tool.call.id")
    approval: Literal["auto", "user", "denied", "timeout"] | None = None
    approval_wait_s: Seconds | None = None
    duration_s: Seconds | None = None
    outcome: Literal["ok", "error"] | None = None
    exit_code: int | None = None
    error_type: str | None = Field(None, alias="error.type")
    arguments: ContentJson | None = Field(None, alias="gen_ai.tool.call.arguments")
    result: ContentJson | None = Field(None, alias="gen_ai.tool.call.result")


class CompletionSeen(Data):
    """Of completion.shown, accepted, partially_accepted and ended."""

    completion: str = Field(alias="completion.id")
    visible_s: Seconds | None = None
    accepted_u16_total: Count | None = None
    accepted_u16_delta: Count | None = None
    trigger: Literal["word", "line", "suggest"] | None = None
    end: Literal["accepted", "rejected", "ignored", "superseded"] | None = None
    typing_disagreed: bool | None = None
    never_shown: bool | None = None


class AnswerAction(Data):
    turn: str | None = Field(None, alias="turn.id")
    action: Literal[
        "copied", "inserted", "applied", "run_in_terminal", "link_followed",
        "followup_clicked", "regenerated", "expanded_reasoning",
    ]  # fmt: skip
    block_index: Count | None = None
    u16: Count | None = None


class Target(Data):
    kind: Literal["completion", "turn", "diff"]
    id: Annotated[str, Field(min_length=1)]


class FeedbackSubmitted(Data):
    """A rating as last given: the current one of (rater, target, name) has the highest revision."""

    target: Target
    name: str = Field("thumb", alias="gen_ai.evaluation.name")
    value: StrictFloat | StrictStr | None = Field(None, alias="gen_ai.evaluation.score.value")
    """1 up and 0 down for a thumb."""
    label: str | None = Field(None, alias="gen_ai.evaluation.score.label")
    explanation: ContentText | None = Field(None, alias="gen_ai.evaluation.explanation")
    response_id: str | None = Field(None, alias="gen_ai.response.id")
    rater: str | None = None
    rater_source: Literal["human", "model", "code"] = "human"
    reasons: tuple[str, ...] = ()
    revision: Annotated[int, Field(ge=1)] = 1
    supersedes: str | None = None
    age_s: Seconds | None = None


class FeedbackWithdrawn(Data):
    supersedes: str
    """The id of the feedback.submitted fact that no longer holds."""


class FeedbackShown(Data):
    """A widget to rate with was on screen: who could have rated, for the bias of who did."""

    target: Target
    surface: str | None = None
    """Where: chat, diff, inline, terminal, ..."""
    name: str = Field("thumb", alias="gen_ai.evaluation.name")
    forced: bool = False
    """The developer was asked, because the server drew the turn."""
    propensity: Ratio | None = None
    """The share in force when it was drawn, as the server gave it."""


class PrivacyRedacted(Data):
    counts: dict[str, Count] = Field(default_factory=dict)
    bytes_scanned: Count | None = None
    ms: Seconds | None = None


class QueueDropped(Data):
    first_sequence: Count
    last_sequence: Count
    count: Count
    reason: Literal["quota", "age", "corrupt", "consent", "rejected"]


class ClientError(Data):
    error_type: str = Field(alias="error.type")
    stack_hash: str | None = None


class ReportFiled(Data):
    """A dogfood report, by hand or by an automatic check."""

    turn: str | None = Field(None, alias="turn.id")
    by: Literal["human", "check"] = "human"
    severity: str | None = None
    text: ContentText | None = None
    details: dict[str, Any] = Field(default_factory=dict)
