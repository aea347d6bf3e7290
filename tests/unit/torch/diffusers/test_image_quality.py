# SPDX-License-Identifier: Apache-2.0
"""PSNR and SSIM against their definitions, and grids of images."""

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from quantrt.errors import DataError
from quantrt.torch.diffusers.image_grid import save_image_grid
from quantrt.torch.diffusers.image_quality import psnr_db, ssim


@pytest.fixture
def image(rng: np.random.Generator) -> np.ndarray:
    return rng.random((24, 20, 3)).astype(np.float32)


def direct_ssim(a: np.ndarray, b: np.ndarray) -> float:
    """Window by window, as the paper writes it."""
    steps = np.arange(-5, 6)
    window = np.exp(-(steps[:, None] ** 2 + steps**2) / (2 * 1.5**2))
    window /= window.sum()
    found = []
    for y in range(5, a.shape[0] - 5):
        for x in range(5, a.shape[1] - 5):
            for c in range(a.shape[2]):
                u, v = (image[y - 5 : y + 6, x - 5 : x + 6, c].astype(np.float64) for image in (a, b))
                mu, mv = (window * u).sum(), (window * v).sum()
                vu, vv = (window * (u - mu) ** 2).sum(), (window * (v - mv) ** 2).sum()
                cov = (window * (u - mu) * (v - mv)).sum()
                found.append(
                    (2 * mu * mv + 1e-4) * (2 * cov + 9e-4) / ((mu**2 + mv**2 + 1e-4) * (vu + vv + 9e-4))
                )
    return float(np.mean(found))


def test_equal_images(image: np.ndarray):
    assert psnr_db(image, image) == math.inf
    assert ssim(image, image) == pytest.approx(1.0)


def test_psnr_is_its_formula(image: np.ndarray):
    assert psnr_db(image, image + np.float32(0.1)) == pytest.approx(20.0, abs=1e-3)


def test_ssim_is_its_definition(image: np.ndarray, rng: np.random.Generator):
    other = np.clip(image + rng.normal(0, 0.2, image.shape), 0, 1).astype(np.float32)
    assert ssim(image, other) == pytest.approx(direct_ssim(image, other), rel=1e-9)
    assert ssim(image, other) < 0.95


@pytest.mark.parametrize("function", [psnr_db, ssim])
def test_what_cannot_be_compared_is_refused(function, image: np.ndarray):
    with pytest.raises(DataError, match="different shapes"):
        function(image, image[1:])
    with pytest.raises(DataError, match="not finite"):
        function(image, np.full_like(image, np.nan))


def test_images_below_the_window_have_no_structure(image: np.ndarray):
    with pytest.raises(DataError, match="11 pixels at least"):
        ssim(image[:10], image[:10])


def test_a_grid_has_a_column_per_engine(tmp_path: Path, image: np.ndarray):
    save_image_grid({"FP32": [image, image], "INT8": [image * 0.9, image]}, tmp_path / "grid.png")
    with Image.open(tmp_path / "grid.png") as grid:
        pixels = np.asarray(grid)
    assert pixels.shape == (2 * (24 + 16 + 4), 2 * (20 + 4), 3)
    assert np.array_equal(pixels[:24, :20], np.rint(image * 255).astype(np.uint8))


def test_unequal_columns_are_refused(tmp_path: Path, image: np.ndarray):
    with pytest.raises(DataError, match="cannot make a grid"):
        save_image_grid({"FP32": [image], "INT8": []}, tmp_path / "grid.png")
    assert not list(tmp_path.iterdir())
