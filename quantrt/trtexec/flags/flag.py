# SPDX-License-Identifier: Apache-2.0
"""One flag of trtexec, and what it comes to here."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["ALL", "OWN", "SINCE_10", "UNTIL_10", "V8", "V10", "V11", "Effect", "Flag", "Form"]

V8, V10, V11 = "8.6", "10.16", "11.1"
ALL = (V8, V10, V11)
UNTIL_10 = (V8, V10)
SINCE_10 = (V10, V11)
OWN = ()
"""No trtexec has it: an addition of QuantRT's own."""


class Effect(enum.Enum):
    """What giving a flag does here."""

    DOES = "does it"
    NOTHING = "nothing to do"
    REFUSED = "refused"


class Form(enum.Enum):
    """How a flag's value is written; the enum's value is what a help text shows."""

    SWITCH = ""
    TEXT = "TEXT"
    FILE = "FILE"
    FOLDER = "DIR"
    WHOLE = "N"
    NUMBER = "X"
    SHAPES = "NAME:1x3x224x224,..."
    FILES = "NAME:FILE,..."
    LAYERS = "LAYER:TYPE,..."
    SIGNED = "+A,-B,..."
    POOLS = "POOL:SIZE,..."
    IO_FORMATS = "TYPE:FORMAT+FORMAT,..."
    PERCENTS = "P1,P2,..."


@dataclass(frozen=True)
class Flag:
    """One row of the table.

    Attributes:
        name: as typed, dashes included.
        versions: of trtexec that have it, out of ALL; empty for an addition of QuantRT's own.
        form: of its value.
        effect: what it does here.
        text: what that is, or why it does nothing or is refused; one phrase.
        same_as: the flag that it is another name of.
        choices: the only values it takes, when not empty.
        repeats: whether it may be given several times.
        is_hidden: trtexec parses it, and does not list it in its help.
    """

    name: str
    versions: tuple[str, ...]
    form: Form
    effect: Effect
    text: str
    same_as: str | None = None
    choices: tuple[str, ...] = ()
    repeats: bool = False
    is_hidden: bool = False

    @property
    def value_text(self) -> str:
        """Its value as a help text shows it; empty for a switch."""
        return "|".join(self.choices) or self.form.value
