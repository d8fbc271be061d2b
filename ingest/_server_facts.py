"""What the server mints: completions it served, exposures it caused, turns it drew, imports it took."""

from typing import Any, Literal

from pydantic import Field

from ingest._facts import ContentJson, Count, Data, Ratio, Seconds


class CompletionFinished(Data):
    """One answer of one checkpoint, as sent; also cancelled and broken ones, with what there was."""

    completion: str = Field(alias="completion.id")
    conversation: str | None = Field(None, alias="gen_ai.conversation.id")
    turn: str | None = Field(None, alias="turn.id")
    checkpoint: str
    policy_version: str | None = None
    route: str | None = None
    reason: Literal["randomised", "pinned", "default", "fallback", "holdout"]
    experiment: str | None = None
    version: Count | None = None
    variant: str | None = None
    assignment: str | None = None
    outcome: Literal["ok", "error", "cancelled"]
    error_type: str | None = Field(None, alias="error.type")
    stream: bool = False
    response_id: str | None = Field(None, alias="gen_ai.response.id")
    response_model: str | None = Field(None, alias="gen_ai.response.model")
    finish_reasons: tuple[str, ...] = Field((), alias="gen_ai.response.finish_reasons")
    input_tokens: Count | None = Field(None, alias="gen_ai.usage.input_tokens")
    output_tokens: Count | None = Field(None, alias="gen_ai.usage.output_tokens")
    time_to_first_token_s: Seconds | None = None
    duration_s: Seconds | None = None
    tokens_per_s: Seconds | None = None
    sampling: dict[str, Any] = Field(default_factory=dict)
    chat_template_sha256: str | None = None
    tools_sha256: str | None = None
    input_messages: ContentJson | None = Field(None, alias="gen_ai.input.messages")
    output_messages: ContentJson | None = Field(None, alias="gen_ai.output.messages")
    tools: ContentJson | None = Field(None, alias="gen_ai.tool.definitions")
    prompt_token_ids: ContentJson | None = None
    token_ids: ContentJson | None = None
    logprobs: ContentJson | None = None
    simulated: bool = False
    """True where the developer, the engine or both are scripted."""


class ExperimentExposed(Data):
    """One unit met one arm for the first time. Mints assigned and received arm apart."""

    assignment: str
    experiment: str
    version: Count
    unit_type: Literal["user", "organization"]
    unit: str
    assigned: str
    received: str
    propensity: Ratio
    reason: Literal["randomised", "pinned", "fallback", "holdout"]
    checkpoint: str | None = None
    first_use: bool = True
    simulated: bool = False


class FeedbackAsked(Data):
    """The developer of this turn is asked for a rating, whatever they would volunteer."""

    turn: str = Field(alias="turn.id")
    conversation: str | None = Field(None, alias="gen_ai.conversation.id")
    asked: bool
    propensity: Ratio
    """The probability with which this turn was drawn; its answer weighs 1 ÷ propensity."""


class ImportRecorded(Data):
    """One history taken in; its counts are what the summary printed."""

    origin: str
    file_sha256: str
    counts: dict[str, Count] = Field(default_factory=dict)
    not_understood: dict[str, Count] = Field(default_factory=dict)
