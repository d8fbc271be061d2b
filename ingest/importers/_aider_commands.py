"""Slash commands of aider: which one a typed line calls, and what kind it is."""

from dataclasses import dataclass

_COMMANDS = (
    "add", "add-clipboard-image", "architect", "ask", "chat-mode", "clear", "clipboard", "code",
    "commit", "context", "copy", "copy-context", "diff", "drop", "edit", "editor", "editor-model",
    "exit", "git", "help", "lint", "load", "ls", "map", "map-refresh", "model", "models",
    "multiline-mode", "paste", "quit", "read-only", "reasoning-effort", "report", "reset", "run",
    "save", "settings", "test", "think-tokens", "tokens", "undo", "voice", "weak-model", "web",
)  # fmt: skip
# Prefixes that name one command in the aider of their time; later commands made them ambiguous.
_OF_THEIR_TIME = {"e": "exit", "m": "model", "cl": "clear", "mod": "model", "chat": "chat-mode"}

ASKING = frozenset({"ask", "code", "architect", "context", "help"})
"""With a question behind them they go to the model; aider logs the question once more."""
FORGETTING = frozenset({"clear", "reset"})
LEAVING = frozenset({"exit", "quit"})
MAY_ASK = ASKING | {"run", "test", "lint", "web", "undo", "clipboard", "add-clipboard-image"}
"""The model may answer what these print."""


@dataclass(frozen=True)
class Command:
    name: str
    """One of aider's own words, never the developer's: "unknown" where it is none of them."""
    arguments: str
    """What was typed behind it, without the blanks around it."""

    @property
    def is_question(self) -> bool:
        return self.name in ASKING and bool(self.arguments)


def command_in(typed: str) -> Command | None:
    """The command a prompt calls, or None for a plain prompt. aider takes unique prefixes."""
    if typed.startswith("!"):
        return Command("run", typed[1:].strip())
    if not typed.startswith("/"):
        return None
    word, *rest = typed[1:].split(maxsplit=1) or [""]
    return Command(_resolved(word), rest[0].strip() if rest else "")


def _resolved(word: str) -> str:
    if word in _COMMANDS:
        return word
    matching = [name for name in _COMMANDS if word and name.startswith(word)]
    if len(matching) == 1:
        return matching[0]
    return _OF_THEIR_TIME.get(word, "unknown")
