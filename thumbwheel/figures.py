"""Figures as a person reads them; a dash where there is no answer."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

Json = Mapping[str, Any]


def number(value: float | None, *, signed: bool = False) -> str:
    return "–" if value is None else f"{value:+.4f}" if signed else f"{value:.4f}"


def interval_of(interval: list[float] | None) -> str:
    return f"{interval[0]:+.4f} … {interval[1]:+.4f}" if interval else "–"


def p_of(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if value else "< 1e-300"


def effect_of(effect: float | None, interval: list[float] | None, p_value: float | None) -> str:
    """In one line."""
    return f"{number(effect, signed=True)}, {interval_of(interval)}, p = {p_of(p_value)}"


def lift(comparison: Json) -> str:
    if comparison["relative_effect"] is None:
        return "–"
    interval = comparison["relative_interval"]
    around = f" ({100 * interval[0]:+.1f} … {100 * interval[1]:+.1f})" if interval else ""
    return f"{comparison['relative_effect']:+.1%}{around}"


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def bounds(found: Json) -> str:
    return interval_of(found["ci"]) if found["ci"] else "–"


def printable(text: str) -> str:
    """What a client sent, without what a terminal would obey."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in text)
    return escape(shown if len(shown) <= 40 else f"{shown[:39]}…")


def tell(out: Console, arms: Iterable[Json], say: Callable[[Json], str | None]) -> None:
    """What is said of an arm; arms of which the same is said share a line."""
    said: dict[str, list[str]] = {}
    for arm in arms:
        if text := say(arm):
            said.setdefault(text, []).append(arm["variant"])
    for text, variants in said.items():
        out.print(f"  {', '.join(variants)}: {text}")
