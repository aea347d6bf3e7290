# SPDX-License-Identifier: Apache-2.0
"""Program -> the model of library "cuda" in an engine file -> Program. Nothing in it is ever executed.

    graph                  JSON: inputs, outputs, steps, kernels and plans without machine code, notes (biases
                           that are arrays by their keys), and of each of Program.coded its type and the axis
                           of its scales, of groups also their size and the length of the axis; sorted
    weights/weight/KEY     the arrays of Program.weights, and the codes of Program.coded, int8, or uint8 with
                           two codes in each
    weights/scale/KEY      the scales of Program.coded, float32
    weights/zero/KEY       the zero points of groups that have some, uint8
    weights/cubin/KEY/90   machine code of a kernel for compute capability 9.0, uint8
    weights/plan/KEY       what cuDNN serialized of a plan, uint8
    weights/nodes          the protobuf of Program.nodes, uint8

Options may hold infinities; they are written as Python's json writes them. In the file, graph and machine
code are one compressed stream: packed.py.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from quantrt.errors import DataError, InternalError, ModelError
from quantrt.ir.collector import without_collector
from quantrt.kernels.kernel import CompiledKernel
from quantrt.kernels.kernel_text import spec_from_json, spec_to_json
from quantrt.plan.coded_weight import CodedWeight, as_codes, may_be_codes
from quantrt.plan.cudnn_plan import CudnnPlan
from quantrt.plan.grouped_weight import GroupedWeight, as_groups, may_be_groups
from quantrt.plan.json_fields import as_count, as_mapping, as_text, as_texts, as_truth
from quantrt.plan.named_biases import name_biases, spell_biases
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program import Place, Program, Step
from quantrt.threads import usable_cores

__all__ = ["CUBIN", "LIBRARY", "PLAN", "program_from_model", "program_to_model"]

LIBRARY = "cuda"

WEIGHT = "weight/"
SCALE = "scale/"
ZERO = "zero/"
CUBIN = "cubin/"
PLAN = "plan/"
NODES = "nodes"

SMALL_BYTES = 1 << 16
"""Of weights that are compared with each other: biases and the like."""

_STEP_FIELDS = (
    "runner", "region", "inputs", "outputs", "options", "weights", "kernels", "plans", "is_host",
    "reads_values",
)  # fmt: skip
_PLACE_FIELDS = ("buffer", "first", "channels", "beside", "beside_first")
_PLAN_FIELDS = ("workspace_bytes", "cudnn", "gpu")
_KERNEL_FIELDS = (
    "spec", "symbol", "shared_bytes", "extra_pointers", "registers", "spills", "overlaps", "facts",
)  # fmt: skip


@without_collector()
def program_to_model(program: Program) -> LibraryModel:
    """The program as an engine file holds it, weights as codes where they can be; of equal ones equal bytes.

    Raises:
        InternalError: options, facts or notes are not JSON.
    """
    coded = {**_found_codes(program.weights), **program.coded}
    document = {
        "coded": {key: _coded_row(weight) for key, weight in coded.items()},
        "inputs": program.inputs,
        "outputs": program.outputs,
        "steps": [_step_row(step) for step in program.steps],
        "kernels": {key: _kernel_row(kernel) for key, kernel in program.kernels.items()},
        "plans": {
            key: {name: getattr(plan, name) for name in _PLAN_FIELDS} for key, plan in program.plans.items()
        },
        "notes": name_biases(program.notes, program.weights, coded),
    }
    try:
        graph = json.dumps(document, sort_keys=True, separators=(",", ":"), default=_plain).encode()
    except (TypeError, ValueError) as error:
        raise InternalError("the program is not JSON", got=str(error)) from error
    arrays = {**program.weights, **{key: weight.codes for key, weight in coded.items()}}
    weights = {WEIGHT + key: arrays[key] for key in sorted(arrays)}
    weights |= {SCALE + key: coded[key].scale for key in sorted(coded)}
    weights |= {ZERO + key: zero for key, zero in _zero_points(coded)}
    for key in sorted(program.kernels):
        for capability, cubin in sorted(program.kernels[key].cubins.items()):
            weights[f"{CUBIN}{key}/{capability}"] = np.frombuffer(cubin, np.uint8)
    for key in sorted(program.plans):
        weights[PLAN + key] = np.frombuffer(program.plans[key].data, np.uint8)
    if program.nodes:
        weights[NODES] = np.frombuffer(program.nodes, np.uint8)
    return LibraryModel(LIBRARY, graph, weights)


def program_from_model(model: LibraryModel) -> Program:
    """The program that `program_to_model` wrote; its weights stay where they are.

    Raises:
        ModelError: the content is not a program, or its parts do not belong together.
    """
    try:
        document = json.loads(model.graph)
        weights = _under(WEIGHT, model.weights)
        scales, zeros = (_under(prefix, model.weights) for prefix in (SCALE, ZERO))
        coded = _coded(document.get("coded", {}), weights, scales, zeros)
        steps = tuple(_step(row) for row in document["steps"])
        kernels = _kernels(document["kernels"], _under(CUBIN, model.weights))
        plans = _plans(document.get("plans", {}), _under(PLAN, model.weights))
        inputs = tuple(as_texts(row, 2) for row in document["inputs"])
        outputs = tuple(as_texts(row, 3) for row in document["outputs"])
        notes = spell_biases(as_mapping(document["notes"]), weights)
    except DataError as error:
        raise _damaged(str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(f"{type(error).__name__}: {error}") from error
    nodes = model.weights.get(NODES)
    program = Program(
        inputs=inputs,
        outputs=outputs,
        steps=steps,
        weights={key: array for key, array in weights.items() if key not in coded},
        kernels=kernels,
        nodes=b"" if nodes is None else nodes.tobytes(),
        notes=notes,
        plans=plans,
        coded=coded,
    )
    _check(program)
    return program


def _found_codes(weights: Mapping[str, np.ndarray]) -> dict[str, CodedWeight | GroupedWeight]:
    """Those of the weights that are codes times scales.

    Most are none by a look at a few values: that is Python's work, in which several threads would only wait
    for each other. Small ones that are equal, such as biases of zeros, are looked at once.
    """
    alike: dict[Hashable, list[str]] = {}
    for key, weight in weights.items():
        alike.setdefault(_content(key, weight), []).append(key)
    firsts = {keys[0]: weights[keys[0]] for keys in alike.values()}
    likely = {key: weight for key, weight in firsts.items() if may_be_groups(weight) or may_be_codes(weight)}

    def find(weight: np.ndarray) -> CodedWeight | GroupedWeight | None:
        return as_groups(weight) or as_codes(weight)

    with ThreadPoolExecutor(usable_cores()) as pool:  # numpy computes without Python's lock
        found = dict(zip(likely, pool.map(find, likely.values()), strict=True))
    every = ((key, found.get(keys[0])) for keys in alike.values() for key in keys)
    return {key: weight for key, weight in every if weight is not None}


def _content(key: str, weight: np.ndarray) -> Hashable:
    """Equal for small weights that are equal; a large one is alone."""
    return (weight.dtype.str, weight.shape, weight.tobytes()) if weight.nbytes <= SMALL_BYTES else key


def _zero_points(coded: Mapping[str, CodedWeight | GroupedWeight]) -> Iterator[tuple[str, np.ndarray]]:
    for key, weight in sorted(coded.items()):
        if isinstance(weight, GroupedWeight) and weight.zero_point is not None:
            yield key, weight.zero_point


def _coded_row(weight: CodedWeight | GroupedWeight) -> list[Any]:
    row = [weight.dtype, weight.axis]
    return row if isinstance(weight, CodedWeight) else [*row, weight.group_size, weight.inputs]


def _coded(
    rows: Any,
    codes: Mapping[str, np.ndarray],
    scales: Mapping[str, np.ndarray],
    zeros: Mapping[str, np.ndarray],
) -> dict[str, CodedWeight | GroupedWeight]:
    if as_mapping(rows).keys() != scales.keys() or not zeros.keys() <= scales.keys():
        raise ValueError(f"scales for {sorted({*scales, *zeros})}, its table says {sorted(rows)}")
    found: dict[str, CodedWeight | GroupedWeight] = {}
    for key, (dtype, axis, *groups) in rows.items():
        if groups:
            size, inputs = map(as_count, groups)
            found[key] = GroupedWeight(codes[key], scales[key], zeros.get(key), size, inputs, axis, dtype)
        else:
            found[key] = CodedWeight(codes[key], scales[key], axis, dtype)
    return found


def _kernel_row(kernel: CompiledKernel) -> dict[str, Any]:
    shared = {str(capability): size for capability, size in kernel.shared_bytes.items()}
    row = {name: getattr(kernel, name) for name in _KERNEL_FIELDS}
    return {**row, "spec": spec_to_json(kernel.spec), "shared_bytes": shared, "facts": dict(kernel.facts)}


def _kernels(rows: Any, cubins: Mapping[str, np.ndarray]) -> dict[str, CompiledKernel]:
    codes: dict[str, dict[int, bytes]] = {key: {} for key in as_mapping(rows)}
    for name, array in cubins.items():
        key, _, capability = name.rpartition("/")
        codes[key][int(capability)] = array.tobytes()
    return {key: _kernel(row, codes[key]) for key, row in rows.items()}


def _kernel(row: Any, cubins: dict[int, bytes]) -> CompiledKernel:
    shared = {int(capability): as_count(size) for capability, size in as_mapping(row["shared_bytes"]).items()}
    if shared.keys() != cubins.keys():
        raise ValueError(f"a kernel has machine code for {sorted(cubins)}, its table says {sorted(shared)}")
    return CompiledKernel(
        spec=spec_from_json(row["spec"]),
        symbol=as_text(row["symbol"]),
        cubins=cubins,
        shared_bytes=shared,
        extra_pointers=as_count(row["extra_pointers"]),
        registers=as_count(row["registers"]),
        spills=as_count(row["spills"]),
        overlaps=row.get("overlaps", False) is True,  # engines of before have none that do
        facts=as_mapping(row["facts"]),
    )


def _plans(rows: Any, contents: Mapping[str, np.ndarray]) -> dict[str, CudnnPlan]:
    if as_mapping(rows).keys() != contents.keys():
        raise ValueError(f"plans of cuDNN for {sorted(contents)}, its table says {sorted(rows)}")
    return {
        key: CudnnPlan(
            data=contents[key].tobytes(),
            workspace_bytes=as_count(row["workspace_bytes"]),
            cudnn=as_count(row["cudnn"]),
            gpu=as_text(row["gpu"]),
        )
        for key, row in rows.items()
    }


def _step_row(step: Step) -> dict[str, Any]:
    places = [[getattr(place, name) for name in _PLACE_FIELDS] for place in step.places]
    row = {name: getattr(step, name) for name in _STEP_FIELDS}
    return {**row, "places": places} if places else row


def _place(row: Any) -> Place:
    buffer, first, channels, beside, beside_first = row
    return Place(
        as_text(buffer), as_count(first), as_count(channels), as_text(beside), as_count(beside_first)
    )


def _step(row: Any) -> Step:
    return Step(
        runner=as_text(row["runner"]),
        region=as_text(row["region"]),
        inputs=as_texts(row["inputs"]),
        outputs=as_texts(row["outputs"]),
        options=as_mapping(row["options"]),
        weights=as_texts(row["weights"]),
        kernels=as_texts(row["kernels"]),
        plans=as_texts(row.get("plans", [])),
        is_host=as_truth(row["is_host"]),
        reads_values=as_truth(row["reads_values"]),
        places=tuple(map(_place, row.get("places", []))),
    )


def _check(program: Program) -> None:
    """Fail unless every buffer, weight, kernel and plan that is used is there when it is used."""
    known = {name for name, _ in program.inputs}
    for step in program.steps:
        beside = [place.beside for place in step.places]
        lacking = [name for name in (*step.inputs, *beside) if name and name not in known]
        lacking += [key for key in step.weights if key not in program.weights and key not in program.coded]
        lacking += [key for key in step.kernels if key not in program.kernels]
        lacking += [key for key in step.plans if key not in program.plans]
        if lacking:
            raise _damaged(f"region '{step.region}' needs '{lacking[0]}', which nothing provides")
        known.update(name for name in step.outputs if name)
    lacking = [buffer for _, buffer, _ in program.outputs if buffer not in known]
    if lacking:
        raise _damaged(f"nothing makes the output '{lacking[0]}'")


def _under(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _damaged(reason: str) -> ModelError:
    return ModelError(
        "cannot use the program of this engine",
        got=reason,
        hint="`quantrt build MODEL.onnx ... -o ENGINE.qrt` again, with this version",
    )


def _plain(value: Any) -> Any:
    """Mappings of any kind, and numpy's numbers, as JSON knows them."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON")
