# SPDX-License-Identifier: Apache-2.0
"""What engines are held against: networks in fp16 through torch.compile, linear layers by torchao or not."""

__all__ = ["TORCHAO", "compiled", "halves", "in_codes"]

from collections.abc import Callable, Mapping

import numpy as np
import torch

Inputs = Mapping[str, torch.Tensor]

TORCHAO = {
    "int8": "Int8DynamicActivationInt8WeightConfig",
    "fp8": "Float8DynamicActivationFloat8WeightConfig",
}
"""Of `torchao.quantization`: activations in 8 bits as they come, weights once."""

LEAST_ROWS = 17
"""Of a product in int8 of torch's; layers of fewer rows, which embed times, stay float."""


def halves(
    net: torch.nn.Module, feed: Mapping[str, np.ndarray], device: str = "cuda"
) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The network and its inputs in fp16, images with their channels last."""
    inputs = {name: torch.from_numpy(x).half().to(device) for name, x in feed.items()}
    for name, x in inputs.items():
        inputs[name] = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    half = net.half().to(memory_format=torch.channels_last)  # type: ignore[call-overload,unused-ignore]
    return half, inputs


def in_codes(half: torch.nn.Module, inputs: Inputs, codes: str, *, tunes: bool = False) -> list[int]:
    """Put the linear layers of a network in codes by torchao; how many, and how many there are.

    Args:
        codes: one of TORCHAO.
        tunes: let torch's compiler search for the launch of every kernel, as torchao has it: of a UNet that
            takes longer than all else.
    """
    from torchao import quantization

    linears = {name: one for name, one in half.named_modules() if isinstance(one, torch.nn.Linear)}
    rows: dict[torch.nn.Module, int] = {}
    hooks = [
        one.register_forward_pre_hook(lambda one, x: rows.update({one: x[0].numel() // x[0].shape[-1]}))
        for one in linears.values()
    ]
    with torch.inference_mode():
        half(**inputs)
    for hook in hooks:
        hook.remove()
    chosen = {name for name, one in linears.items() if rows[one] >= LEAST_ROWS}
    how = getattr(quantization, TORCHAO[codes])()
    quantization.quantize_(half, how, filter_fn=lambda module, name: name in chosen)
    torch._inductor.config.coordinate_descent_tuning = tunes
    return [len(chosen), len(linears)]


def compiled(half: torch.nn.Module, inputs: Inputs) -> Callable[[], object]:
    """The network through torch.compile, captured in a CUDA graph."""
    run = torch.compile(half)
    with torch.inference_mode():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                run(**inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            run(**inputs)
    return graph.replay
