"""How a figure is printed: what it is, what it was compared with, and the ratio."""

from __future__ import annotations


def say(what: str, value: float, unit: str, *, goal: str = "") -> None:
    """Print one figure."""
    print(f"{what:<58} {value:>10.3f} {unit:<10} {goal}", flush=True)


def ratio(what: str, value: float, floor: float, *, goal: str = "") -> None:
    """Print ``value`` as a multiple of ``floor``, measured in the same run."""
    say(what, value / floor, "x", goal=goal)
