# SPDX-License-Identifier: Apache-2.0
"""What the user should know of a build, in sentences."""

from __future__ import annotations

from quantrt.assign.accuracy.class_labels import class_count, is_guessing
from quantrt.report.bench import unsteady_notes
from quantrt.report.built.facts import BuildFacts
from quantrt.report.built.own_codes import own_code_notes
from quantrt.tactics.candidates import Candidate

__all__ = ["build_notes"]


def build_notes(facts: BuildFacts) -> tuple[str, ...]:
    """Of the engine that is shipped, and of how it was found."""
    winner = facts.winner
    compared = dict.fromkeys((facts.choice.baseline, facts.choice.winner))
    return (
        *unsteady_notes((name, facts.latencies[name]) for name in compared if name in facts.latencies),
        *facts.notes,
        *own_code_notes(facts),
        *(winner.fitted.model.notes if winner.fitted else ()),
        *_kept_float_notes(winner),
        *_noisy_notes(facts),
        *_set_notes(facts),
        *_guess_notes(facts),
    )


def _kept_float_notes(winner: Candidate) -> tuple[str, ...]:
    """How many layers ONNX Runtime is kept from computing in other precisions than the report says."""
    if not winner.kept_float:
        return ()
    first, count = winner.kept_float[0], len(winner.kept_float)
    which = f"'{first}' stays" if count == 1 else f"{count} layers, '{first}' the first, stay"
    return (f"{which} float between 8-bit ones: ONNX Runtime's WeightBiasQuantization is off in this engine",)


def _noisy_notes(facts: BuildFacts) -> tuple[str, ...]:
    """Outputs that the shipped engine loses while all of them together are inside the budget."""
    verdict = facts.choice.verdicts.get(facts.choice.winner)
    noisy = () if verdict is None or verdict.accuracy is None else verdict.accuracy.noisy
    return tuple(
        f"output '{name}' alone has an SQNR of {db:.1f} dB: larger outputs hide it from the metric"
        for name, db in noisy
    )


def _set_notes(facts: BuildFacts) -> tuple[str, ...]:
    """How outputs of the shipped engine were compared whose rows have no order of their own."""
    verdict = facts.choice.verdicts.get(facts.choice.winner)
    sets = () if verdict is None or verdict.accuracy is None else verdict.accuracy.sets
    return tuple(str(one) for one in sets)


def _guess_notes(facts: BuildFacts) -> tuple[str, ...]:
    """That the labels do not fit the float model, or its inputs are not what it was trained on."""
    checked = [verdict.accuracy for verdict in facts.choice.verdicts.values() if verdict.accuracy is not None]
    classes = class_count(facts.model.outputs)
    if not checked or checked[0].metric != "top1" or classes is None:
        return ()
    top1, samples = checked[0].float_score, checked[0].samples
    if not is_guessing(top1, samples, classes):
        return ()
    return (
        f"the float model's top1 of {top1:.4f} is no more than guessing among {classes} classes: are labels "
        "numbered as its outputs, and samples preprocessed as in training?",
    )
