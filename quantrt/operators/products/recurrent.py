# SPDX-License-Identifier: Apache-2.0
"""RNN, GRU and LSTM, step by step: any activations, per-sample lengths, clipping, peepholes, both layouts.

Shapes with layout 0: X [T, B, I], W [D, gates * H, I], R [D, gates * H, H], B [D, 2 * gates * H],
states [D, B, H], Y [T, D, B, H]; layout 1 puts the batch first. D is the number of directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from quantrt.errors import ModelError
from quantrt.operators.elementwise.activation import (
    elu,
    hard_sigmoid,
    leaky_relu,
    softplus,
    softsign,
    thresholded_relu,
)
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "gru", "lstm", "rnn"]

Function = Callable[[torch.Tensor], torch.Tensor]
State = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class _Layer:
    """The tensors of one recurrent node, batch second whatever its layout.

    Attributes:
        states: initial h (and c), each [D, B, H].
        lengths: valid steps per sample [B], or None: all.
    """

    x: torch.Tensor
    w: torch.Tensor
    r: torch.Tensor
    b: torch.Tensor
    states: State
    lengths: torch.Tensor | None
    direction: str
    is_batch_first: bool


def rnn(
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None = None,
    sequence_lens: torch.Tensor | None = None,
    initial_h: torch.Tensor | None = None,
    *,
    hidden_size: int | None = None,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = ("Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    layout: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """h = f(x W^T + h R^T + Wb + Rb)."""
    layer = _layer(x, w, r, b, sequence_lens, (initial_h,), direction, layout, hidden_size)
    functions = _activations(activations, activation_alpha, activation_beta)

    def step(d: int, gates: torch.Tensor, state: State) -> State:
        (h,) = state
        total = gates + h @ layer.r[d].T + layer.b[d].chunk(2)[1]
        return (functions[d](_clipped(total, clip)),)

    y, (h,) = _run(layer, step)
    return y, h


def gru(
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None = None,
    sequence_lens: torch.Tensor | None = None,
    initial_h: torch.Tensor | None = None,
    *,
    hidden_size: int | None = None,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = ("Sigmoid", "Tanh", "Sigmoid", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """z, r = f(...); n = g(x Wn^T + r * (h Rn^T + Rbn) + Wbn); h = (1 - z) * n + z * h.

    Gates are in order z, r, n. Without linear_before_reset, n = g(x Wn^T + (r * h) Rn^T + Rbn + Wbn).
    """
    layer = _layer(x, w, r, b, sequence_lens, (initial_h,), direction, layout, hidden_size)
    functions = _activations(activations, activation_alpha, activation_beta)

    def step(d: int, gates: torch.Tensor, state: State) -> State:
        (h,) = state
        f, g = functions[2 * d : 2 * d + 2]
        xz, xr, xn = gates.chunk(3, -1)
        wz, wr, wn = layer.r[d].chunk(3)
        bz, br, bn = layer.b[d].chunk(2)[1].chunk(3)
        update = f(_clipped(xz + h @ wz.T + bz, clip))
        reset = f(_clipped(xr + h @ wr.T + br, clip))
        inner = reset * (h @ wn.T + bn) if linear_before_reset else (reset * h) @ wn.T + bn
        new = g(_clipped(xn + inner, clip))
        return ((1 - update) * new + update * h,)

    y, (h,) = _run(layer, step)
    return y, h


def lstm(
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None = None,
    sequence_lens: torch.Tensor | None = None,
    initial_h: torch.Tensor | None = None,
    initial_c: torch.Tensor | None = None,
    p: torch.Tensor | None = None,
    *,
    hidden_size: int | None = None,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = ("Sigmoid", "Tanh", "Tanh", "Sigmoid", "Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """i, o, f = f(...), n = g(...); c = f * c + i * n; h = o * h(c). Gates in order i, o, f, n.

    Args:
        p: peepholes [D, 3 * H]: i and f see the old c, o the new one, in order i, o, f.
        input_forget: f = 1 - i.
    """
    layer = _layer(x, w, r, b, sequence_lens, (initial_h, initial_c), direction, layout, hidden_size)
    functions = _activations(activations, activation_alpha, activation_beta)
    peepholes = torch.zeros_like(layer.b[:, : 3 * layer.r.shape[2]]) if p is None else p

    def step(d: int, gates: torch.Tensor, state: State) -> State:
        h, c = state
        f, g, last = functions[3 * d : 3 * d + 3]
        pi, po, pf = peepholes[d].chunk(3)
        total = gates + h @ layer.r[d].T + layer.b[d].chunk(2)[1]
        gi, go, gf, gn = total.chunk(4, -1)
        enter = f(_clipped(gi + pi * c, clip))
        forget = 1 - enter if input_forget else f(_clipped(gf + pf * c, clip))
        c = forget * c + enter * g(_clipped(gn, clip))
        return f(_clipped(go + po * c, clip)) * last(c), c

    y, (h, c) = _run(layer, step)
    return y, h, c


def _layer(
    x: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor | None,
    lengths: torch.Tensor | None,
    initial: Sequence[torch.Tensor | None],
    direction: str,
    layout: int,
    hidden_size: int | None,
) -> _Layer:
    x = x.transpose(0, 1) if layout else x
    directions, _, hidden = r.shape
    if direction not in ("forward", "reverse", "bidirectional") or directions != 1 + (
        direction == "bidirectional"
    ):
        raise ModelError(
            "the direction does not fit the weights", got=f"'{direction}' with {directions} sets of weights"
        )
    if hidden_size is not None and hidden_size != hidden:
        raise ModelError("hidden_size is not that of the weights", got=str(hidden_size), expected=str(hidden))
    empty = torch.zeros((directions, x.shape[1], hidden), dtype=x.dtype, device=x.device)
    states = [empty if state is None else state.transpose(0, 1) if layout else state for state in initial]
    b = torch.zeros((directions, 2 * w.shape[1]), dtype=x.dtype, device=x.device) if b is None else b
    return _Layer(x, w, r, b, tuple(states), lengths, direction, bool(layout))


def _run(layer: _Layer, step: Callable[[int, torch.Tensor, State], State]) -> tuple[torch.Tensor, State]:
    """Y and the last states, in the node's layout."""
    outputs, finals = [], []
    for d in range(layer.r.shape[0]):
        is_reverse = layer.direction == "reverse" or d == 1
        gates = layer.x @ layer.w[d].T + layer.b[d].chunk(2)[0]
        y, state = _run_direction(layer, d, gates, is_reverse, step)
        outputs.append(y)
        finals.append(state)
    y = torch.stack(outputs, 1)
    states = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
    if layer.is_batch_first:
        return y.permute(2, 0, 1, 3), tuple(state.transpose(0, 1) for state in states)
    return y, states


def _run_direction(
    layer: _Layer,
    d: int,
    gates: torch.Tensor,
    is_reverse: bool,
    step: Callable[[int, torch.Tensor, State], State],
) -> tuple[torch.Tensor, State]:
    """One direction over all steps; beyond a sample's length its output is 0 and its state stays."""
    state = tuple(part[d] for part in layer.states)
    count = gates.shape[0]
    rows: list[torch.Tensor] = [torch.zeros_like(state[0])] * count
    for t in reversed(range(count)) if is_reverse else range(count):
        new = step(d, gates[t], state)
        rows[t] = new[0]
        if layer.lengths is not None:
            valid = (layer.lengths > t).reshape(-1, 1)
            rows[t] = torch.where(valid, new[0], torch.zeros_like(new[0]))
            new = tuple(torch.where(valid, a, b) for a, b in zip(new, state, strict=True))
        state = new
    y = (
        torch.stack(rows)
        if rows
        else torch.zeros((0, *state[0].shape), dtype=gates.dtype, device=gates.device)
    )
    return y, state


def _clipped(x: torch.Tensor, clip: float | None) -> torch.Tensor:
    return x if clip is None else x.clamp(-clip, clip)


def _activations(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> tuple[Function, ...]:
    """The functions by name; each takes the next alpha and beta if it has one and one is left."""
    left_alphas, left_betas = list(alphas), list(betas)
    return tuple(_activation(name, left_alphas, left_betas) for name in names)


def _activation(name: str, alphas: list[float], betas: list[float]) -> Function:
    kind = name.lower()
    plain: dict[str, Function] = {
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "relu": torch.relu,
        "softsign": softsign,
        "softplus": softplus,
    }
    if kind in plain:
        return plain[kind]
    defaults = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "elu": 1.0, "hardsigmoid": 0.2}
    if kind not in (*defaults, "affine", "scaledtanh"):
        raise ModelError("unknown activation of a recurrent layer", got=name)
    alpha = alphas.pop(0) if alphas else defaults.get(kind, 1.0)
    if kind == "leakyrelu":
        return lambda x: leaky_relu(x, alpha=alpha)
    if kind == "thresholdedrelu":
        return lambda x: thresholded_relu(x, alpha=alpha)
    if kind == "elu":
        return lambda x: elu(x, alpha=alpha)
    beta = betas.pop(0) if betas else {"hardsigmoid": 0.5, "affine": 0.0, "scaledtanh": 1.0}[kind]
    if kind == "hardsigmoid":
        return lambda x: hard_sigmoid(x, alpha=alpha, beta=beta)
    if kind == "affine":
        return lambda x: alpha * x + beta
    return lambda x: alpha * torch.tanh(beta * x)


OPERATORS = (
    Operator("RNN", 7, rnn),
    Operator("GRU", 7, gru),
    Operator("LSTM", 7, lstm),
)
