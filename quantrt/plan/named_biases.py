# SPDX-License-Identifier: Apache-2.0
"""Biases that the record of a quantization and the program have in common: written once in an engine file.

The record (`quantrt.quantize.record`) spells each bias in base64. Where an array of the program has the very
same bytes, the file has {"array": KEY} in its place.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from quantrt.plan.program import QUANTIZATION

__all__ = ["name_biases", "spell_biases"]

BIASES = "biases"
ARRAY = "array"

_BIAS_TYPE = np.dtype("<f4")


def name_biases(
    notes: Mapping[str, Any], arrays: Mapping[str, np.ndarray], coded: Collection[str]
) -> dict[str, Any]:
    """The notes of a program with each bias by the key of an array that has its bytes, where there is one.

    Args:
        arrays: of the program.
        coded: keys of those that the file holds as codes.
    """
    keys = {_text(array): key for key, array in arrays.items() if key not in coded and _may_be_bias(array)}
    return _with_biases(notes, lambda text: {ARRAY: keys[text]} if text in keys else text)


def spell_biases(notes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The notes that `name_biases` was given.

    Raises:
        KeyError: a bias is that of an array which the file lacks.
    """
    return _with_biases(notes, lambda bias: _text(arrays[bias[ARRAY]]) if isinstance(bias, dict) else bias)


def _with_biases(notes: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    record = notes.get(QUANTIZATION)
    if not isinstance(record, Mapping) or not isinstance(record.get(BIASES), Mapping):
        return dict(notes)
    biases = {name: change(bias) for name, bias in record[BIASES].items()}
    return {**notes, QUANTIZATION: {**record, BIASES: biases}}


def _may_be_bias(array: np.ndarray) -> bool:
    return array.dtype == _BIAS_TYPE and array.ndim == 1


def _text(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array, _BIAS_TYPE).tobytes()).decode()
