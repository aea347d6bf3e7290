# SPDX-License-Identifier: Apache-2.0
"""The demo's committed model and arrays are what demo/README.md says they are."""

import runpy
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

MAX_MODEL_BYTES = 2_000_000
MAX_ARRAY_BYTES = 2_000_000
MIN_TOP1_RATIO = 0.985


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def test_files_are_small(demo_dir):
    assert (demo_dir / "digits_resnet.onnx").stat().st_size < MAX_MODEL_BYTES
    assert (demo_dir / "calibration.npz").stat().st_size < MAX_ARRAY_BYTES
    assert (demo_dir / "validation.npz").stat().st_size < MAX_ARRAY_BYTES


def test_arrays_hold_whole_pixels(demo_dir):
    calibration, validation = arrays(demo_dir / "calibration.npz"), arrays(demo_dir / "validation.npz")
    assert set(calibration) == {"image"}
    assert set(validation) == {"image", "labels"}
    assert calibration["image"].shape == (100, 1, 64, 64)
    assert validation["image"].shape == (600, 1, 64, 64)
    assert validation["labels"].shape == (600,)
    assert validation["labels"].dtype == np.int64
    assert set(validation["labels"].tolist()) == set(range(10))
    for image in (calibration["image"], validation["image"]):
        assert image.dtype == np.float32
        assert np.array_equal(image, np.rint(image))
        assert image.min() == 0
        assert image.max() == 255


def test_no_calibration_image_is_a_validation_image(demo_dir):
    calibration = {image.tobytes() for image in arrays(demo_dir / "calibration.npz")["image"]}
    validation = {image.tobytes() for image in arrays(demo_dir / "validation.npz")["image"]}
    assert not calibration & validation


def test_arrays_are_those_of_their_script(demo_dir):
    pytest.importorskip("sklearn", reason="scikit-learn holds the source images (extra: dev)")
    digits = runpy.run_path(str(demo_dir / "digits.py"))["load_digits_64"]()
    assert np.array_equal(digits.calibration_images, arrays(demo_dir / "calibration.npz")["image"])
    assert np.array_equal(digits.validation_images, arrays(demo_dir / "validation.npz")["image"])
    assert np.array_equal(digits.validation_labels, arrays(demo_dir / "validation.npz")["labels"])
    assert len(digits.train_images) == 1197


def test_model_keeps_its_batch_normalization(demo_dir):
    model = onnx.load(demo_dir / "digits_resnet.onnx")
    onnx.checker.check_model(model, full_check=True)
    op_types = [node.op_type for node in model.graph.node]
    assert op_types.count("Conv") == op_types.count("BatchNormalization") == 10
    assert op_types.count("Add") == 4
    assert op_types.count("GlobalAveragePool") == 1
    (image,) = model.graph.input
    (logits,) = model.graph.output
    assert (image.name, logits.name) == ("image", "logits")
    assert image.type.tensor_type.shape.dim[0].dim_param == "batch"


def test_model_reads_the_held_out_digits(demo_dir):
    validation = arrays(demo_dir / "validation.npz")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        demo_dir / "digits_resnet.onnx", options, providers=["CPUExecutionProvider"]
    )
    logits = np.concatenate(
        [session.run(["logits"], {"image": part})[0] for part in np.split(validation["image"], 6)]
    )
    assert (logits.argmax(axis=1) == validation["labels"]).mean() >= MIN_TOP1_RATIO


def test_the_run_script_shows_each_command_before_it_runs(demo_dir, tmp_path):
    fake = tmp_path / "quantrt"
    fake.write_text('#!/bin/sh\necho "ran $1"\n')
    fake.chmod(0o755)
    done = subprocess.run(
        [demo_dir / "run.sh"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if line]
    verbs = [line.split()[2] for line in lines if line.startswith("$ ")]
    assert verbs == ["doctor", "build", "bench", "compare", "inspect"]
    assert [line for line in lines if line.startswith("ran ")] == [f"ran {verb}" for verb in verbs]
