"""Picks facts out of a history."""

from typing import Any

from ingest.importers import History

Facts = list[dict[str, Any]]


def facts_in(history: History) -> Facts:
    return list(history.events(consent="training", user="ada"))


def of(facts: Facts, kind: str) -> Facts:
    return [fact for fact in facts if fact["type"] == f"thumbwheel.{kind}.v1"]


def data(facts: Facts, kind: str) -> list[dict[str, Any]]:
    return [fact["data"] for fact in of(facts, kind)]


def said(facts: Facts) -> list[str]:
    """The models' answers."""
    messages = [one["gen_ai.output.messages"] for one in data(facts, "inference.completed")]
    return [message[0]["parts"][0]["content"] for message in messages]
