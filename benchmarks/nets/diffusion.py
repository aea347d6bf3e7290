# SPDX-License-Identifier: Apache-2.0
"""The networks that `benchmarks.diffusion` measures: how each is made, and what it is given.

Beside those that denoise, the image encoder of a SAM: the same table is of interest there.
"""

__all__ = ["NETS", "Network"]

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks.nets.flux_stack import FLUX, FLUX_SMALL, FluxSizes, empty_flux_stack, flux_inputs
from benchmarks.nets.sam_encoder import SAM, SAM_SMALL, SamSizes, empty_sam_encoder, sam_inputs
from benchmarks.nets.sdxl_unet import SD15, SDXL, SDXL_SMALL, Sizes, empty_sdxl_unet, sdxl_inputs


@dataclass(frozen=True)
class Network:
    """A network for images of one size.

    Attributes:
        empty: it, without memory for its weights, by height and width.
        inputs: seeded inputs by name, by batch, height and width.
        shape: its usual height and width: of latents, or of a grid of tokens.
    """

    empty: Callable[[int, int], nn.Module]
    inputs: Callable[[int, int, int], dict[str, torch.Tensor]]
    shape: tuple[int, int]


def _unet(sizes: Sizes, side: int) -> Network:
    return Network(
        lambda height, width: empty_sdxl_unet(sizes),
        lambda batch, height, width: sdxl_inputs(sizes, batch, height, width),
        (side, side),
    )


def _flux(sizes: FluxSizes, side: int) -> Network:
    return Network(
        lambda height, width: empty_flux_stack(sizes, height, width),
        lambda batch, height, width: flux_inputs(sizes, batch, height, width),
        (side, side),
    )


def _sam(sizes: SamSizes, side: int) -> Network:
    return Network(lambda height, width: empty_sam_encoder(sizes), sam_inputs, (side, side))


NETS = {
    "sdxl": _unet(SDXL, 128),
    "sdxl-small": _unet(SDXL_SMALL, 16),
    "sd15": _unet(SD15, 64),
    "flux": _flux(FLUX, 64),
    "flux-small": _flux(FLUX_SMALL, 4),
    "sam": _sam(SAM, 512),
    "sam-small": _sam(SAM_SMALL, 64),
}
