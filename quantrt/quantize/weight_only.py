# SPDX-License-Identifier: Apache-2.0
"""Weights alone in 4 bits: products and tables on codes in groups, activations in floats.

For ONNX Runtime MatMul and Gemm with a constant weight become MatMulNBits, large tables that rows are
gathered from become GatherBlockQuantized: operators of its own (domain com.microsoft) whose kernels read
two codes a byte. For others the same codes are in ONNX's own operators (`quantrt.quantize.weight_blocks`);
for engines of GPUs weights become the floats that the codes stand for, in which these are found again
(`quantrt.plan.grouped_weight`). Everything else stays as it is. Rounding is to the nearest code, by GPTQ or
AdaRound; AWQ may scale channels first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.config import DEFAULT_GROUP_SIZE, QuantizeConfig
from quantrt.errors import ModelError, UsageError
from quantrt.ir.clone import clone
from quantrt.ir.edit import (
    add_constant,
    constant_of,
    float_attribute,
    int_attribute,
    is_operator,
    take_place,
)
from quantrt.model.model import Model
from quantrt.model.passes.spell.raise_opset import NARROW_OPSET, raise_opset
from quantrt.quantize.algorithms.ada_round import round_groups
from quantrt.quantize.algorithms.awq import choose_awq
from quantrt.quantize.algorithms.gptq import round_by_gptq
from quantrt.quantize.algorithms.group_rounding import QMIN, Groups, group_count, round_nearest
from quantrt.quantize.algorithms.layer_inputs import Batches, as_matrix, is_transposed, observe_grams
from quantrt.quantize.algorithms.smoothing import smooth
from quantrt.quantize.placement.exclusions import excluded_nodes
from quantrt.quantize.weight_blocks import add_blocks, check_opset

__all__ = ["WeightOnly", "quantize_weights"]

Array = np.ndarray[Any, Any]

DOMAIN = "com.microsoft"
BITS = 4
LEAST_TABLE = 1 << 16
"""Elements of a table below which it stays float."""


@dataclass(frozen=True)
class _Form:
    """How a runtime reads weights in 4 bits.

    Attributes:
        in_blocks: in ONNX's own operators, all groups of one size; otherwise in those of ONNX Runtime.
        is_positive: scales have to be.
        has_tables: rows are gathered from codes; otherwise tables stay float.
        is_decoded: as the floats that the codes stand for.
    """

    in_blocks: bool = True
    is_positive: bool = False
    has_tables: bool = True
    is_decoded: bool = False


FORMS = {
    "cuda": _Form(in_blocks=False, is_decoded=True),
    "ort": _Form(in_blocks=False),
    "openvino": _Form(),
    "tensorrt": _Form(is_positive=True, has_tables=False),
}
"""By target. TensorRT's scales are strictly positive (API reference, IDequantizeLayer), and it would decode
all of a table for a few of its rows."""

BY_SAMPLES = {"gptq": round_by_gptq, "adaround": round_groups}
"""How a matrix is rounded on X' X, by the name in the option."""


@dataclass(frozen=True)
class WeightOnly:
    """A model whose weights are in 4 bits.

    Attributes:
        graph: with these weights.
        products, tables: how many became 4-bit, by node name.
        scaled: how many activations AWQ divides.
    """

    graph: ir.Model
    products: tuple[str, ...]
    tables: tuple[str, ...]
    scaled: int = 0

    @property
    def nodes(self) -> frozenset[str]:
        """The names of all of these."""
        return frozenset((*self.products, *self.tables))


def quantize_weights(
    model: Model,
    batches: Batches,
    config: QuantizeConfig,
    *,
    target: str = "ort",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> WeightOnly:
    """Put the weights of a float model into 4 bits.

    Args:
        batches: samples, for GPTQ, AdaRound and AWQ.
        target: one of FORMS. Where all groups have one size, a weight that they do not divide stays float.
        on_progress: called with (weights rounded, in all).

    Raises:
        UsageError: there are no samples, and the rounding wants some; or an exclusion matches nothing.
        ModelError: no weight of the model can be in 4 bits.
    """
    method, size, form = config.weight_rounding, config.group_size or DEFAULT_GROUP_SIZE, FORMS[target]
    if method != "nearest" and not batches:
        raise UsageError(
            f"cannot round weights by {method} without samples",
            expected="calibration data",
            hint="--calib-data calib.npz, or --weight-rounding nearest",
        )
    graph, scaled = clone(model.graph), 0
    if form.in_blocks:
        check_opset(graph)
    if "awq" in method:
        found = choose_awq(model.graph, batches, group_size=size)
        graph, scaled = smooth(model.graph, found), len(found.folded) + len(found.multiplied)
    kept = excluded_nodes(graph.graph, config.exclude, config.exclude_types)
    nodes = [node for node in graph.graph if (node.name or "") not in kept]
    products = [node for node in nodes if _is_product(node, size, form)]
    tables = [node for node in nodes if _is_table(node, size, form)]
    if not products and not tables:
        raise ModelError("no weight of the model can be in 4 bits", expected="MatMul, Gemm or Gather of one")
    rounded = _rounded(graph, products, batches, config, form)
    total = len(products) + len(tables)
    for done, (node, groups) in enumerate(rounded):
        on_progress(done, total)
        spell = _block_product if form.in_blocks else _replace_product
        (_decode_product if form.is_decoded else spell)(graph, node, groups)
    made: dict[str, tuple[ir.Value, ...]] = {}
    for done, node in enumerate(tables):
        on_progress(len(products) + done, total)
        _code_table(graph, node, size, form, made)
    on_progress(total, total)
    _finish(graph, form)
    return WeightOnly(
        graph, tuple(n.name or "" for n in products), tuple(n.name or "" for n in tables), scaled
    )


def _is_product(node: ir.Node, group_size: int, form: _Form) -> bool:
    """A product of an activation and a constant matrix of at least one group of inputs."""
    weight = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if (
        weight is None
        or weight.ndim != 2
        or weight.dtype != np.float32
        or constant_of(node.inputs[0]) is not None
    ):
        return False
    if is_operator(node, "Gemm"):
        factors = (float_attribute(node, name, 1.0) for name in ("alpha", "beta"))
        if int_attribute(node, "transA", 0) or any(factor != 1.0 for factor in factors):
            return False
    return is_operator(node, "MatMul", "Gemm") and _has_groups(len(_matrix(node)), group_size, form)


def _has_groups(inputs: int, group_size: int, form: _Form) -> bool:
    """Whether there is a group of inputs at least, and no part of one where blocks have one size."""
    return inputs >= group_size and not (form.in_blocks and inputs % group_size)


def _is_table(node: ir.Node, group_size: int, form: _Form) -> bool:
    table = constant_of(node.inputs[0]) if form.has_tables and is_operator(node, "Gather") else None
    if table is None or table.ndim != 2 or table.dtype != np.float32 or int_attribute(node, "axis", 0) != 0:
        return False
    columns = table.shape[1]
    return table.size >= LEAST_TABLE and _has_groups(columns, group_size, form) and columns % 2 == 0


def _matrix(node: ir.Node) -> Array:
    """A product's weight as [K, N]."""
    weight = constant_of(node.inputs[1])
    assert weight is not None  # _is_product
    (matrix,) = as_matrix(weight, node)
    return np.asarray(matrix)


def _rounded(
    graph: ir.Model, products: Sequence[ir.Node], batches: Batches, config: QuantizeConfig, form: _Form
) -> Iterator[tuple[ir.Node, Groups]]:
    """Each product's weight in 4 bits; by GPTQ or AdaRound on the samples, or to the nearest codes."""
    by_samples = (made for name, made in BY_SAMPLES.items() if name in config.weight_rounding)
    round_matrix = next(by_samples, None)
    size, is_positive = config.group_size or DEFAULT_GROUP_SIZE, form.is_positive
    if round_matrix is None:
        for node in products:
            yield node, round_nearest(_matrix(node), group_size=size, is_positive=is_positive)
        return
    source = clone(graph)  # products are replaced while later ones are still to be observed
    for node, gram in observe_grams(source, products, batches):
        yield node, round_matrix(_matrix(node), gram[0], group_size=size, is_positive=is_positive)


def _packed(codes: Array) -> Array:
    """Codes [..., even number] as unsigned nibbles, the first of two in the low half: uint8 [..., half]."""
    unsigned = (codes - np.int8(QMIN)).astype(np.uint8)
    return np.asarray(unsigned[..., 0::2] | (unsigned[..., 1::2] << BITS))


def _replace_product(graph: ir.Model, node: ir.Node, groups: Groups) -> None:
    """MatMulNBits in the place of a product, and an Add for a bias."""
    inputs, outputs = groups.codes.shape
    size, count = groups.group_size, group_count(inputs, groups.group_size)
    padded = np.zeros((count * size, outputs), np.int8)
    padded[:inputs] = groups.codes
    codes = _packed(padded.T.reshape(outputs, count, size))
    scales = np.ascontiguousarray(groups.scales.T).reshape(-1)
    operands = [
        node.inputs[0],
        add_constant(graph, f"{node.name}_int4", codes),
        add_constant(graph, f"{node.name}_int4_scales", scales),
    ]
    attributes = {"K": inputs, "N": outputs, "bits": BITS, "block_size": size}
    product = ir.node("MatMulNBits", operands, attributes=attributes, domain=DOMAIN, name=node.name)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    result, made = node.outputs[0], product.outputs[0]
    added = [product]
    if bias is not None:
        add = ir.node("Add", [made, bias], name=f"{node.name}_bias")
        made.name, made.type, made.shape = f"{result.name}_unbiased", result.type, result.shape
        made = add.outputs[0]
        added.append(add)
    take_place(graph, node, added, made)


def _block_product(graph: ir.Model, node: ir.Node, groups: Groups) -> None:
    """The weight of a product from codes."""
    node.replace_input_with(1, add_blocks(graph, node, 1, groups, is_transposed=is_transposed(node)))


def _decode_product(graph: ir.Model, node: ir.Node, groups: Groups) -> None:
    """The weight of a product as what its codes stand for."""
    floats = groups.dequantize().T if is_transposed(node) else groups.dequantize()
    name = node.inputs[1].name if node.inputs[1] is not None else ""
    node.replace_input_with(1, add_constant(graph, f"{name}_int4_decoded", np.ascontiguousarray(floats)))


def _code_table(
    graph: ir.Model, node: ir.Node, size: int, form: _Form, made: dict[str, tuple[ir.Value, ...]]
) -> None:
    """The table of a Gather as codes, `made` of which Gathers of one table share."""
    table = node.inputs[0]
    array = constant_of(table)
    if table is None or array is None:
        return
    name = table.name or ""
    if name not in made:
        made[name] = tuple(_table_values(graph, node, round_nearest(array.T, group_size=size), form))
    if form.in_blocks or form.is_decoded:
        node.replace_input_with(0, made[name][0])
    else:
        _replace_gather(graph, node, size, *made[name])


def _table_values(graph: ir.Model, node: ir.Node, groups: Groups, form: _Form) -> Iterator[ir.Value]:
    """What the Gather of a table reads: the table itself, or codes and scales."""
    name = "" if node.inputs[0] is None else node.inputs[0].name
    if form.in_blocks:
        yield add_blocks(graph, node, 0, groups, is_transposed=True)
    elif form.is_decoded:
        yield add_constant(graph, f"{name}_int4_decoded", np.ascontiguousarray(groups.dequantize().T))
    else:
        yield add_constant(graph, f"{name}_int4", _packed(groups.codes.T))
        yield add_constant(graph, f"{name}_int4_scales", np.ascontiguousarray(groups.scales.T))


def _replace_gather(graph: ir.Model, node: ir.Node, size: int, codes: ir.Value, scales: ir.Value) -> None:
    """GatherBlockQuantized in the place of a Gather."""
    attributes = {"bits": BITS, "block_size": size, "gather_axis": 0, "quantize_axis": 1}
    operands = [codes, node.inputs[1], scales]
    gather = ir.node("GatherBlockQuantized", operands, attributes=attributes, domain=DOMAIN, name=node.name)
    take_place(graph, node, [gather], gather.outputs[0])


def _finish(graph: ir.Model, form: _Form) -> None:
    """Declare the operators' opset and drop the floats that nothing reads any more."""
    if form.in_blocks:
        raise_opset(graph, NARROW_OPSET)
    elif not form.is_decoded:
        graph.opset_imports[DOMAIN] = 1
    graph.graph.sort()
    for name in [name for name, value in graph.graph.initializers.items() if not value.uses()]:
        if not graph.graph.initializers[name].is_graph_output():
            del graph.graph.initializers[name]
