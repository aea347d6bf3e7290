# SPDX-License-Identifier: Apache-2.0
"""The words of a trtexec command line, as flags with their values in the order given.

`--flag=value` is trtexec's spelling; `--flag value` is taken too. A switch may say `=true` or `=false`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from quantrt.errors import UsageError, close_match
from quantrt.option_checks import check_choice
from quantrt.trtexec.flags.flag import Effect, Flag, Form
from quantrt.trtexec.flags.flags import BY_NAME

__all__ = ["Given", "read_words"]

_TRUTHS = {"": True, "true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class Given:
    """The flags of one command line.

    Attributes:
        items: pairs of a flag, by its first name where it has several, and its value as text; a switch that
            is off is not among them.
    """

    items: tuple[tuple[Flag, str], ...]

    def has(self, name: str) -> bool:
        """Whether the flag was given."""
        return any(flag.name == name for flag, _ in self.items)

    def text(self, name: str) -> str | None:
        """The value of a flag that is given once; None where it was not given."""
        return next((text for flag, text in self.items if flag.name == name), None)

    def of_effect(self, effect: Effect) -> Iterator[Flag]:
        """The flags of one effect, each once."""
        return iter(dict.fromkeys(flag for flag, _ in self.items if flag.effect is effect))


def read_words(words: Sequence[str]) -> Given:
    """The flags in these words.

    Raises:
        UsageError: a word is no flag of any trtexec (names the nearest), a value is missing or is none of
            the flag's choices, a flag is given two values, or is one that cannot be done here.
    """
    items: list[tuple[Flag, str]] = []
    switches: dict[Flag, bool] = {}
    spelled: dict[Flag, str] = {}
    rest = list(words)
    while rest:
        given_flag, text = _next(rest)
        flag = BY_NAME[given_flag.same_as] if given_flag.same_as else given_flag
        spelled.setdefault(flag, given_flag.name)
        if flag.form is Form.SWITCH:
            is_on = _truth(given_flag, text)
            if switches.setdefault(flag, is_on) != is_on:
                raise UsageError(f"{flag.name} is switched both on and off", expected="one of the two")
            if not is_on:
                continue
            text = ""
        items.append((flag, text))
    _check_repeats(items)
    given = Given(tuple(dict.fromkeys(items)) if not _has_groups(items) else tuple(items))
    _check_refused(given, spelled)
    return given


def _next(rest: list[str]) -> tuple[Flag, str]:
    """Take the next flag with its value off the words."""
    word = rest.pop(0)
    name, equals, text = word.partition("=")
    flag = BY_NAME.get(name)
    if flag is None:
        raise _unknown(name if name.startswith("-") else word)
    if flag.form is not Form.SWITCH and not equals:
        if not rest or rest[0].startswith("-"):
            raise UsageError(f"{name} needs a value", hint=f"{name}={flag.value_text}")
        text = rest.pop(0)
    if flag.choices:
        check_choice("value", text, flag.choices, where=f"of {name}", hint=f"{name}={{}}".format)
    return flag, text


def _truth(flag: Flag, text: str) -> bool:
    if text not in _TRUTHS:
        raise UsageError(f"{flag.name} is a switch", got=f"'{text}'", expected="no value, true or false")
    return _TRUTHS[text]


def _unknown(word: str) -> UsageError:
    if not word.startswith("-"):
        is_bare = word.partition("=")[0] in {name.lstrip("-") for name in BY_NAME}
        hint = f"--onnx={word}" if word.endswith(".onnx") else "quantrt trtexec --help"
        hint = f"--{word}" if is_bare else hint
        return UsageError(f"trtexec takes flags alone, not '{word}'", hint=hint)
    near = close_match(word, BY_NAME)
    return UsageError(f"no trtexec has a flag '{word}'", hint=near or "quantrt trtexec --help")


def _has_groups(items: Sequence[tuple[Flag, str]]) -> bool:
    """Whether flags are told apart by what stands before them, so that equal ones may recur."""
    return any(flag.name in ("--profile", "--refPair") for flag, _ in items)


def _check_repeats(items: Sequence[tuple[Flag, str]]) -> None:
    seen: dict[str, str] = {}
    for flag, text in items:
        if not flag.repeats and seen.setdefault(flag.name, text) != text:
            raise UsageError(
                f"{flag.name} is given twice", got=f"'{seen[flag.name]}' and '{text}'", expected="one value"
            )


def _check_refused(given: Given, spelled: Mapping[Flag, str]) -> None:
    """Refuse what cannot be done, by the names that it was given under."""
    refused = list(given.of_effect(Effect.REFUSED))
    if refused:
        names = ", ".join(spelled[flag] for flag in refused)
        has_model = given.has("--onnx") or given.has("--loadEngine")
        raise UsageError(
            f"{spelled[refused[0]]} cannot be done: {refused[0].text}",
            hint=f"without {names}" if has_model else f"--onnx=MODEL.onnx, without {names}",
        )
