# SPDX-License-Identifier: Apache-2.0
"""DFT, STFT and the window functions."""

from __future__ import annotations

import math

import torch

from quantrt.errors import ModelError
from quantrt.operators.element_types import torch_type
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "blackman_window", "dft", "dft_by_attribute", "hamming_window", "hann_window", "stft"]

_FLOAT = 1  # ONNX's number of float32


def stft(
    signal: torch.Tensor,
    frame_step: torch.Tensor,
    window: torch.Tensor | None = None,
    frame_length: torch.Tensor | None = None,
    *,
    onesided: int = 1,
) -> torch.Tensor:
    """Fourier transform of overlapping frames.

    Args:
        signal: [B, T] or [B, T, 1] real, [B, T, 2] complex.
        window: [frame length]; ones.
        onesided: only frequencies 0 .. length / 2; a real signal has no more.

    Returns:
        [B, frames, frequencies, 2], real and imaginary part.
    """
    is_complex = signal.dim() == 3 and signal.shape[2] == 2
    if is_complex and onesided:
        raise ModelError("the transform of a complex signal has two sides", hint="onesided=0")
    if frame_length is not None:
        length = int(frame_length.item())
    else:
        length = signal.shape[1] if window is None else window.shape[0]
    samples = torch.view_as_complex(signal.contiguous()) if is_complex else signal.reshape(signal.shape[:2])
    frames = samples.unfold(1, length, int(frame_step.item()))
    frames = frames if window is None else frames * window
    spectrum = torch.fft.rfft(frames) if onesided else torch.fft.fft(frames)
    return torch.view_as_real(spectrum).to(signal.dtype)


def dft(
    x: torch.Tensor,
    length: torch.Tensor | None = None,
    axis: torch.Tensor | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> torch.Tensor:
    """Fourier transform along an axis, or its inverse.

    Args:
        x: [..., 1] real or [..., 2] complex.
        length: of the transform; that of the axis. Shorter signals are filled up with zeros.
        axis: -2.
        onesided: forward, only frequencies 0 .. length / 2 are given; inverse, only these are there, and the
            result is real.
    """
    return _dft(x, length, -2 if axis is None else int(axis.item()), bool(inverse), bool(onesided))


def dft_by_attribute(
    x: torch.Tensor,
    length: torch.Tensor | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> torch.Tensor:
    """Opset 17: the axis is an attribute."""
    return _dft(x, length, axis, bool(inverse), bool(onesided))


def _dft(
    x: torch.Tensor, length: torch.Tensor | None, axis: int, is_inverse: bool, is_onesided: bool
) -> torch.Tensor:
    dim = axis if axis >= 0 else axis + x.dim()
    n = None if length is None else int(length.item())
    wide = x.to(torch.promote_types(x.dtype, torch.float32)).contiguous()
    is_complex = x.shape[-1] == 2
    signal = torch.view_as_complex(wide) if is_complex else wide[..., 0]
    if is_onesided and is_complex and not is_inverse:
        raise ModelError("the transform of a complex signal has two sides", hint="onesided=0")
    of_two_sides = torch.fft.ifft if is_inverse else torch.fft.fft
    of_one_side = torch.fft.irfft if is_inverse else torch.fft.rfft
    found: torch.Tensor = (of_one_side if is_onesided else of_two_sides)(signal, n, dim)
    parts = torch.view_as_real(found) if found.is_complex() else found[..., None]
    return parts.to(x.dtype)


def hann_window(size: torch.Tensor, *, output_datatype: int = _FLOAT, periodic: int = 1) -> torch.Tensor:
    """1/2 - 1/2 cos(2 pi i / N), N = size, or size - 1 when not periodic."""
    return _cosine_window(size, (0.5, 0.5, 0.0), output_datatype, periodic)


def hamming_window(size: torch.Tensor, *, output_datatype: int = _FLOAT, periodic: int = 1) -> torch.Tensor:
    """25/46 - 21/46 cos(2 pi i / N)."""
    return _cosine_window(size, (25 / 46, 21 / 46, 0.0), output_datatype, periodic)


def blackman_window(size: torch.Tensor, *, output_datatype: int = _FLOAT, periodic: int = 1) -> torch.Tensor:
    """0.42 - 0.5 cos(2 pi i / N) + 0.08 cos(4 pi i / N)."""
    return _cosine_window(size, (0.42, 0.5, 0.08), output_datatype, periodic)


def _cosine_window(
    size: torch.Tensor, parts: tuple[float, float, float], output_datatype: int, periodic: int
) -> torch.Tensor:
    count = int(size.item())
    period = count if periodic else max(count - 1, 1)
    angle = torch.arange(count, dtype=torch.float64, device=size.device) * (2 * math.pi / period)
    constant, first, second = parts
    window = constant - first * torch.cos(angle) + second * torch.cos(2 * angle)
    return window.to(torch_type(output_datatype))


OPERATORS = (
    Operator("DFT", 17, dft_by_attribute, until=19),
    Operator("DFT", 20, dft),
    Operator("STFT", 17, stft),
    Operator("HannWindow", 17, hann_window),
    Operator("HammingWindow", 17, hamming_window),
    Operator("BlackmanWindow", 17, blackman_window),
)
