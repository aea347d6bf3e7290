# SPDX-License-Identifier: Apache-2.0
"""Convolutions as graphs for cuDNN: what a graph means is what the epilogue means, code for code."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.kernels.kernel_text import kernel_key
from quantrt.plan.cudnn_plan import CudnnGraph, CudnnPlan, graph_key
from quantrt.plan.program import Program, Step
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.targets.cuda import CUDA
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.runtime.cuda.device.cudnn_library import WEIGHT_UID, X_UID, operand_uids, output_uids
from quantrt.runtime.cuda.device.launcher import InterpreterLauncher
from quantrt.runtime.cuda.executor import CudaExecutor
from quantrt.runtime.cuda.reference.cudnn_meaning import compute_graph
from quantrt.runtime.cuda.runner import Assets, Runner
from quantrt.runtime.cuda.runners.cudnn_graph import open_runner
from quantrt.runtime.cuda.steps.steps import FreshMemory
from quantrt.tactics.cuda.candidates import reference_tactic
from quantrt.tactics.cuda.convolutions import conv2d, cudnn_graph
from quantrt.tactics.cuda.convolutions.conv2d import list_tactics
from quantrt.tactics.cuda.convolutions.cudnn_graph import NAME, RUNNER, without_graphs
from quantrt.tactics.cuda.convolutions.cudnn_plans import PlanMaker
from quantrt.tactics.cuda.forms.workloads import Lowered
from quantrt.tactics.cuda.listing import Listing
from quantrt.tactics.cuda.lower import CudaLowering
from quantrt.tactics.cuda.program.assemble import Item, assemble
from quantrt.tactics.cuda.program.wide import Wide
from quantrt.tactics.cuda.tactic import REFERENCE, Rejected, Tactic
from quantrt.tactics.cuda.timing.check import check
from quantrt.tactics.cuda.timing.timing_cache import TimingCache
from quantrt.tactics.cuda.tuning.group import work_key
from quantrt.tactics.cuda.tuning.tune import TuneOptions, tune
from tests.kernels.convolutions.cases import (
    CPU,
    Case,
    Problem,
    channels_last,
    codes,
    float_problem,
    integer_problem,
    run,
    with_epilogue,
)
from tests.nets import quantized as quantized_net
from tests.nets import resnet, samples

H200 = gpu_named("H200")
SMALL = Case(C=16, N=24)


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions are worth a plan here."""
    monkeypatch.setattr(cudnn_graph, "LEAST_PRODUCTS", 1)


class Epilogue:
    """Writes an epilogue: operands first, as expressions have them."""

    def __init__(self, *operands: Operand) -> None:
        self.operands = (Operand("accumulator"), *operands)
        self.instructions: list[Instruction] = []

    def __call__(self, op: str, *args: int, value: float = 0.0) -> int:
        self.instructions.append(Instruction(op, args, value))
        return len(self.operands) + len(self.instructions) - 1

    def const(self, value: float) -> int:
        return self("const", value=value)

    def made(self, *outputs: int) -> Expression:
        return Expression(self.operands, tuple(self.instructions), outputs, (False,) * len(outputs))


def relu(e: Epilogue, y: int) -> int:
    return e("max", y, e.const(0.0))


def clip(e: Epilogue, y: int) -> int:
    return e("min", e("max", e.const(-0.25), y), e.const(0.75))


def silu(e: Epilogue, y: int) -> int:
    return e("mul", y, e("sigmoid", y))


def gelu(e: Epilogue, y: int) -> int:
    gate = e("add", e("erf", e("mul", y, e.const(2**-0.5))), e.const(1.0))
    return e("mul", e("mul", y, e.const(0.5)), gate)


def gelu_tanh(e: Epilogue, y: int) -> int:
    cubed = e("mul", e("pow", y, e.const(3.0)), e.const(0.044715))
    inner = e("mul", e("add", y, cubed), e.const((2 / np.pi) ** 0.5))
    return e("mul", e("mul", y, e.const(0.5)), e("add", e("tanh", inner), e.const(1.0)))


def hard_swish(e: Epilogue, y: int) -> int:
    gate = e("add", e("mul", y, e.const(1 / 6)), e.const(0.5))
    return e("mul", y, e("max", e("min", gate, e.const(1.0)), e.const(0.0)))


ACTIVATIONS = [relu, clip, silu, gelu, gelu_tanh, hard_swish]


def quantized(activation: Callable[[Epilogue, int], int], residual: str = "", *, floats: bool = False):
    """codes = quantize(activation(sums * scale + bias + residual)); with `floats` the float before them."""
    tensors = [Operand("tensor", "r", ("add", 1)), Operand("scalar", value=0.0031)] if residual else []
    constants = Operand("constant", "scale"), Operand("constant", "bias")
    e = Epilogue(*constants, Operand("scalar", value=0.0071), *tensors)
    y = e("add", e("mul", 0, 1), 2)
    if residual:
        y = e("add", y, e("mul", 4, 5) if residual == "int8" else 4)
    y = activation(e, y)
    stored = e("quantize", y, 3)
    return e.made(*([y] if floats else []), stored)


def problem_of(case: Case, epilogue: Expression, residual: str = "", *, floats: bool = False) -> Problem:
    rng = np.random.default_rng(7)
    outputs = ("float16", "int8") if floats else ("int8",)
    tensors = []
    if residual == "int8":
        tensors = [channels_last(torch.from_numpy(codes(rng, case.shape)))]
    elif residual:
        tensors = [channels_last(torch.from_numpy(rng.standard_normal(case.shape)).half())]
    return with_epilogue(integer_problem(case, rng), rng, epilogue, outputs=outputs, tensors=tensors)


def graph_tactic(problem: Problem) -> Tactic:
    found = next(row for row in list_tactics(problem.workload(), H200) if row.name == NAME)
    assert isinstance(found, Tactic), found
    return found


def assert_right(problem: Problem) -> Tactic:
    tactic = graph_tactic(problem)
    (draft,) = tactic.drafts
    assert draft.runner == RUNNER
    assert check(problem.workload(), tactic, run(tactic, problem.inputs), problem.expected()) is None
    return tactic


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("residual", ["", "int8", "float16"])
def test_codes_are_the_reference_s(activation: Callable[[Epilogue, int], int], residual: str):
    assert_right(problem_of(SMALL, quantized(activation, residual), residual))


@pytest.mark.parametrize(
    "case",
    [
        Case(C=3, N=17, kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3), size=(23, 21)),
        Case(C=16, N=20, kernel=(1, 1), pads=(0, 0, 0, 0)),
        Case(C=8, N=16, pads=(0, 1, 2, 0), dilations=(1, 2), size=(11, 13)),
        Case(C=8, N=16, size=(33,), kernel=(5,), strides=(2,), pads=(2, 1), dilations=(1,)),
    ],
    ids=lambda case: case.id,
)
def test_all_geometries(case: Case):
    tactic = assert_right(problem_of(case, quantized(relu)))
    (graph,) = tactic.drafts[0].graphs
    rows = (1,) * (2 - len(case.output))
    assert graph.output_shape == (case.images, case.N, *rows, *case.output)


@pytest.mark.parametrize("residual", ["", "int8"])
def test_a_float_beside_its_codes(residual: str):
    problem = problem_of(SMALL, quantized(relu, residual, floats=True), residual, floats=True)
    (graph,) = assert_right(problem).drafts[0].graphs
    assert [kind for _, kind in graph.outputs] == ["float16", "int8"]


def test_sums_as_they_are():
    problem = integer_problem(SMALL, np.random.default_rng(1))
    (graph,) = assert_right(problem).drafts[0].graphs
    assert graph.ops == (("identity", (0,)),)


def test_products_are_kept_apart_from_sums_where_every_result_is_fixed():
    exact = assert_right(problem_of(SMALL, quantized(relu, "int8"), "int8")).drafts[0].graphs[0]
    ops = [op for op, _ in exact.ops]
    products = [1 + len(exact.operands) + n for n, op in enumerate(ops) if op == "mul"]
    added = {arg for op, args in exact.ops if op == "add" for arg in args}
    assert len(products) == 2
    assert not added & set(products)
    assert ops[-1] == "quotient"
    near = assert_right(problem_of(SMALL, quantized(silu))).drafts[0].graphs[0]
    assert [op for op, _ in near.ops] == ["mul", "add", "sigmoid", "mul", "mul"]


def test_an_erf_gelu_is_one_operation():
    (graph,) = assert_right(problem_of(SMALL, quantized(gelu))).drafts[0].graphs
    assert [op for op, _ in graph.ops] == ["mul", "add", "gelu", "mul"]
    assert graph.operands == ("channel", "channel", "scalar")


def test_floats_with_an_activation_that_torch_cannot_fuse():
    rng = np.random.default_rng(3)
    e = Epilogue(Operand("constant", "bias"))
    problem = with_epilogue(float_problem(SMALL, rng), rng, e.made(silu(e, e("add", 0, 1))))
    assert_right(problem)
    e = Epilogue(Operand("constant", "bias"))
    whole = replace(problem, epilogue=e.made(relu(e, e("add", 0, 1))))
    found = next(row for row in list_tactics(whole.workload(), H200) if row.name == NAME)
    assert isinstance(found, Rejected)
    assert "takes the whole epilogue" in found.reason


def test_layers_that_differ_in_scales_share_a_graph():
    one = problem_of(SMALL, quantized(relu, "int8"), "int8")
    changed = tuple(replace(x, value=0.0031 if x.value else 0.0) for x in one.epilogue.operands)
    other = replace(one, epilogue=replace(one.epilogue, operands=changed))
    assert graph_tactic(one).drafts[0].graphs == graph_tactic(other).drafts[0].graphs
    keys = {work_key(p.workload(), list_tactics(p.workload(), H200)) for p in (one, other)}
    assert len(keys) == 1
    assert_right(other)


@pytest.mark.parametrize(
    ("gpu", "change", "reason"),
    [
        ("T4", lambda p: p, "80 is the least"),
        ("H200", lambda p: replace(p, outputs=("float64",)), "no graph that reads or stores float64"),
        ("H200", lambda p: replace(p, outputs=("float16",)), "codes are stored"),
    ],
)
def test_what_is_no_graph_says_why(gpu: str, change: Callable[[Problem], Problem], reason: str):
    workload = change(problem_of(SMALL, quantized(relu))).workload()
    found = next(row for row in list_tactics(workload, gpu_named(gpu)) if row.name == NAME)
    assert isinstance(found, Rejected)
    assert reason in found.reason or gpu == "T4"


def test_an_operation_that_cudnn_lacks_is_named():
    def stepped(e: Epilogue, y: int) -> int:
        return e("where", e("gt", y, e.const(0.0)), y, e.const(1.0))

    workload = problem_of(SMALL, quantized(stepped)).workload()
    found = next(row for row in list_tactics(workload, H200) if row.name == NAME)
    assert found == Rejected("cudnn", NAME, "cuDNN has no pointwise operation for 'gt'")


def test_a_small_convolution_is_not_worth_a_plan(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    workload = problem_of(SMALL, quantized(relu)).workload()
    found = next(row for row in list_tactics(workload, H200) if row.name == NAME)
    assert isinstance(found, Rejected)
    assert "too few" in found.reason


def test_without_cudnn_the_reason_stands_in_the_list():
    listed = list_tactics(problem_of(SMALL, quantized(relu)).workload(), H200)
    left = without_graphs(listed, "it is not installed")
    assert [row.name for row in left] == [row.name for row in listed]
    assert Rejected("cudnn", NAME, "it is not installed") in left
    assert not any(draft.graphs for row in left if isinstance(row, Tactic) for draft in row.drafts)


class Maker(PlanMaker):
    """Makes plans of nothing; none for the graphs whose keys it is told."""

    def __init__(self, *failing: str) -> None:
        super().__init__("gpu", 0)
        self.failing = failing
        self.asked: list[str] = []

    def make(self, graphs, **options) -> None:
        for key in map(graph_key, graphs):
            self.asked.append(key)
            if key in self.failing:
                self.failures[key] = "no engine"
            else:
                self.plans[key] = CudnnPlan(key.encode(), 16, 91900, "gpu")


def choose(problem: Problem, maker: Maker, cache: TimingCache | None = None):
    """Tuned with the graph and the reference alone."""
    workload = problem.workload()
    listed = [graph_tactic(problem), reference_tactic(workload)]
    return tune(
        [workload],
        {workload.region: listed},
        gpu=H200,
        device=torch.device("cpu"),
        cache=cache or TimingCache({}),
        options=TuneOptions(level=3),
        plans=maker,
    )


def test_a_chosen_plan_gets_into_the_program_and_a_cached_choice_needs_no_other():
    problem = problem_of(SMALL, quantized(relu))
    tactic = graph_tactic(problem)
    (key,) = map(graph_key, tactic.drafts[0].graphs)
    first = choose(problem, Maker())
    assert first.by_region["region"].tactic.name == NAME
    assert list(first.plans) == [key]
    again = Maker()
    second = choose(problem, again, first.cache)
    assert second.by_region["region"].origin == "cached"
    assert set(again.asked) == {key}
    workload = problem.workload()
    lowered = Lowered(None, workload.formula, (), (), ("int8",), workload.weight, workload.constants)
    frame = Program((("x", "int8"),), (("y", "y", "int8"),), (), {}, {})
    item = Item("region", ("x",), ("y",), lowered)
    program = assemble(frame, [item], first.tactics, first.kernels, first.plans)
    assert program.plans == first.plans
    assert [step.plans for step in program.steps] == [(key,)]
    assert program.steps[0].outputs == ("y", "region/workspace")


def test_a_graph_without_a_plan_is_rejected_with_the_reason():
    problem = problem_of(SMALL, quantized(relu))
    (key,) = map(graph_key, graph_tactic(problem).drafts[0].graphs)
    found = choose(problem, Maker(key))
    assert found.by_region["region"].tactic.name == REFERENCE
    assert found.plans == {}
    (rows,) = found.candidates.values()
    assert {row.name: row.reason for row in rows}[NAME] == "no engine"
    assert any("no engine" in note for note in found.notes)


class StandIn:
    """A plan that writes what its graph means, and refuses other shapes, as cuDNN's would."""

    workspace_bytes = 48

    def __init__(self, graph: CudnnGraph) -> None:
        self.graph = graph
        self.runs = 0

    def run(self, tensors: Mapping[int, torch.Tensor], workspace: torch.Tensor, region: str) -> None:
        self.runs += 1
        assert region == "region"
        x = tensors[X_UID]
        assert tuple(x.shape) == self.graph.x
        assert x.is_contiguous(memory_format=torch.channels_last)
        assert (workspace.dtype, workspace.numel()) == (torch.uint8, self.workspace_bytes)
        operands = [tensors[uid] for uid in operand_uids(self.graph)]
        found = compute_graph(self.graph, x, tensors[WEIGHT_UID], operands)
        for uid, value in zip(output_uids(self.graph), found, strict=True):
            tensors[uid].copy_(value)


def opened(tactic: Tactic) -> tuple[Runner, StandIn]:
    """The tactic's step with a stand-in for its plan; its kernel in Triton's interpreter."""
    (draft,) = tactic.drafts
    (graph,) = draft.graphs
    plan = StandIn(graph)
    weights = {constant.key: torch.from_numpy(constant.make().copy()) for constant in draft.constants}
    kernels = {kernel_key(spec): InterpreterLauncher(spec) for spec in draft.kernels}
    keys = tuple(weights), tuple(kernels), ("p",)
    step = Step(draft.runner, "region", draft.inputs, draft.outputs, draft.options, *keys)
    return open_runner(step, Assets(CPU, weights, kernels, plans={"p": plan})), plan


def run_opened(runner: Runner, problem: Problem) -> list[torch.Tensor]:
    allocate = FreshMemory(CPU).allocate_for(0)
    return list(runner.run(problem.inputs, allocate))[:-1]


@pytest.mark.parametrize("residual", ["", "int8"])
def test_a_plan_runs_its_shapes_and_our_kernel_all_others(residual: str):
    problem = problem_of(SMALL, quantized(relu, residual, floats=True), residual, floats=True)
    tactic = graph_tactic(problem)
    runner, plan = opened(tactic)
    assert check(problem.workload(), tactic, run_opened(runner, problem), problem.expected()) is None
    assert plan.runs == 1
    for case in (replace(SMALL, images=1), replace(SMALL, size=(5, 11))):
        other = problem_of(case, problem.epilogue, residual, floats=True)
        other = replace(other, weight=problem.weight, constants=problem.constants)
        assert check(other.workload(), tactic, run_opened(runner, other), other.expected()) is None
    assert plan.runs == 1


def test_an_empty_batch():
    problem = problem_of(SMALL, quantized(relu))
    runner, plan = opened(graph_tactic(problem))
    empty = replace(problem, x=problem.x[:0])
    (got,) = run_opened(runner, empty)
    assert (got.shape, plan.runs) == ((0, *SMALL.shape[1:]), 0)


def test_a_network_with_graphs_gives_what_the_reference_gives(monkeypatch: pytest.MonkeyPatch):
    """Every convolution as cuDNN would compute it; at another batch size too."""
    model, inputs = resnet(), {"x": samples(3, 3, 16, 16)}
    numbers = quantized_net(model, CUDA, inputs)
    config = CudaConfig(exclude_tactic_sources=("triton", "cublaslt"), builder_optimization_level=3)
    monkeypatch.setattr(conv2d, "list_library_tactics", lambda workload, device: [])
    lowering = CudaLowering(model, config, inputs, gpu=H200, device="cpu")
    program = program_from_model(lowering.lower(numbers, "fp16")[0])
    assert [step.runner for step in program.steps].count(RUNNER) == 4
    executor = CudaExecutor(program, model.inputs, model.outputs, device="cpu")
    reference = lowering.reference(numbers, "fp16")
    right = CudaExecutor(reference, model.inputs, model.outputs, device="cpu")
    for batch in (3, 5):
        x = samples(batch, 3, 16, 16, seed=batch)
        assert np.array_equal(executor.run({"x": x})["y"], right.run({"x": x})["y"])
    executor.close()
    right.close()


def test_a_build_below_level_4_tries_no_graphs_beside_our_kernels():
    work = problem_of(SMALL, quantized(relu)).workload()

    def listed(level: int) -> list[Tactic | Rejected]:
        config = CudaConfig(builder_optimization_level=level)
        return Listing(config, H200, (), torch.device("cpu")).of([work], Wide(), ())[work.region]

    (found,) = (row for row in listed(3) if row.name == NAME)
    assert isinstance(found, Rejected)
    assert "none is made below builder optimization level 4" in found.reason
    assert any(isinstance(row, Tactic) and row.name == NAME for row in listed(4))
