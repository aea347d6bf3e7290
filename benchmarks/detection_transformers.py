# SPDX-License-Identifier: Apache-2.0
"""Detection transformers in int8: boxes place by place, as sets, and how many are found.

`python -m benchmarks.detection_transformers train FOLDER KIND` trains a small RT-DETR or D-FINE on drawn
shapes (some ten minutes on one core; needs torch, torchvision and transformers) and writes FOLDER/KIND.onnx.
`python -m benchmarks.detection_transformers judge FOLDER KIND ...` quantizes them and writes the page.

Query selection is a TopK over scores: noise in two like scores exchanges two rows of all outputs.
"""

__all__ = ["KINDS", "judge", "train"]

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages.page import number, table
from benchmarks.record import commit, load_results, machine_line, write_results
from benchmarks.tasks.drawn_shapes import Truth, average_precision, draw, found_ratio
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.ir.session import float_session
from quantrt.model.load import load_model
from quantrt.quantize.fit.fit import fit
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.reference.metrics import sqnr_db
from quantrt.reference.row_sets import RowTally, compared_sets, in_rows_of, row_sets

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "detection-transformers-cpu.json"
PACKAGES = ("onnxruntime", "numpy", "scipy")

STEPS, BATCH, RATE = 2400, 8, 1e-3
CALIBRATION, JUDGED = 128, 300
SURE, SAME = 0.3, 0.9
"""Scores of FP32 from which on a row is a detection, and the overlap at which it is there again."""

OUTPUTS = ("logits", "boxes")

DECODER: Mapping[str, Any] = {
    "encoder_hidden_dim": 64,
    "encoder_ffn_dim": 128,
    "d_model": 64,
    "num_queries": 20,
    "decoder_in_channels": [64, 64, 64],
    "decoder_ffn_dim": 128,
    "decoder_layers": 3,
    "decoder_attention_heads": 4,
    "encoder_attention_heads": 4,
    "num_labels": 3,
    "hidden_expansion": 1.0,
    "num_denoising": 20,
    "freeze_backbone_batch_norms": False,
}


def _rtdetr() -> Any:
    import transformers as t

    backbone = t.RTDetrResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = t.RTDetrConfig(backbone_config=backbone, encoder_in_channels=[32, 48, 64], **DECODER)
    return t.RTDetrForObjectDetection(config)


def _dfine() -> Any:
    import transformers as t

    backbone = t.HGNetV2Config(
        stem_channels=[3, 16, 16],
        stage_in_channels=[16, 32, 48, 64],
        stage_mid_channels=[16, 16, 24, 32],
        stage_out_channels=[32, 48, 64, 96],
        stage_num_blocks=[1, 1, 1, 1],
        stage_downsample=[False, True, True, True],
        stage_light_block=[False, False, True, True],
        stage_kernel_size=[3, 3, 5, 5],
        stage_numb_of_layers=[2, 2, 2, 2],
        out_features=["stage2", "stage3", "stage4"],
        hidden_sizes=[32, 48, 64, 96],
        depths=[1, 1, 1, 1],
        embedding_size=16,
    )
    points = {"decoder_n_points": [4, 4, 4]}
    config = t.DFineConfig(backbone_config=backbone, encoder_in_channels=[48, 64, 96], **points, **DECODER)
    return t.DFineForObjectDetection(config)


KINDS = {"rtdetr": _rtdetr, "dfine": _dfine}


def main() -> None:
    parser = argparse.ArgumentParser(description="Detection transformers in int8.")
    parser.add_argument("what", choices=("train", "judge"))
    parser.add_argument("folder", type=Path, help="of the trained models")
    parser.add_argument("kinds", nargs="+", choices=tuple(KINDS))
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; the page goes beside it")
    args = parser.parse_args()
    for kind in args.kinds:
        if args.what == "train":
            train(kind, args.folder / f"{kind}.onnx")
        else:
            _add(args.out, kind, judge(args.folder / f"{kind}.onnx"))


def train(kind: str, path: Path) -> None:
    """Train on drawn shapes from a seed, and export."""
    import torch

    torch.manual_seed(0)
    rng, model = np.random.default_rng(0), KINDS[kind]().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, STEPS, pct_start=0.1)
    for _ in range(STEPS):
        pictures, truth = zip(*(draw(rng) for _ in range(BATCH)), strict=True)
        labels = [
            {"class_labels": torch.tensor(one.labels), "boxes": torch.tensor(one.boxes)} for one in truth
        ]
        loss = model(pixel_values=torch.tensor(np.stack(pictures)), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
    _export(model.eval(), path)


def _export(model: Any, path: Path) -> None:
    import torch

    class Detector(torch.nn.Module):
        """Logits and boxes alone."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixel_values: Any) -> Any:
            found = self.model(pixel_values=pixel_values)
            return found.logits, found.pred_boxes

    pictures = torch.tensor(np.stack([draw(np.random.default_rng(i))[0] for i in range(2)]))
    torch.onnx.export(
        Detector().eval(),
        (pictures,),
        path,
        dynamo=False,
        opset_version=17,
        input_names=["pixel_values"],
        output_names=list(OUTPUTS),
        dynamic_axes={"pixel_values": {0: "n"}},
    )


def judge(path: Path) -> dict[str, Any]:
    """A row for the float model and for each target's int8."""
    model = load_model(path)
    calibration, (pictures, truth) = _drawn(CALIBRATION, 100)[0], _drawn(JUDGED, 200)
    config, options = QuantizeConfig(), CalibrationConfig()
    data = open_dataset({"pixel_values": calibration}, model.inputs)
    names = observed_values(model, (ORT, OPENVINO), config)
    stats, reference = observe(model, names, data, config, options)
    wanted = _run(model.graph, pictures)
    rows = {"fp32": _precision(wanted, truth)}
    for target in (ORT, OPENVINO):
        made = fit(model, stats, target, reference, config=config, calibration=options).model
        got = _run(write(made), pictures)
        rows[target.name] = {**_precision(got, truth), **_noise(model.graph, wanted, got)}
    return {"rows": rows, "commit": commit()}


def _drawn(count: int, seed: int) -> tuple[np.ndarray, list[Truth]]:
    rng = np.random.default_rng(seed)
    pictures, truth = zip(*(draw(rng) for _ in range(count)), strict=True)
    return np.stack(pictures), list(truth)


def _run(graph: Any, pictures: np.ndarray) -> dict[str, np.ndarray]:
    session = float_session(graph)
    runs = [session.run(list(OUTPUTS), {"pixel_values": part}) for part in np.split(pictures, 15)]
    return dict(zip(OUTPUTS, map(np.concatenate, zip(*runs, strict=True)), strict=True))


def _precision(got: Mapping[str, np.ndarray], truth: Sequence[Truth]) -> dict[str, Any]:
    found = (average_precision(got["logits"], got["boxes"], truth, iou) for iou in (0.5, 0.75))
    return dict(zip(("ap50", "ap75"), found, strict=True))


def _noise(graph: Any, wanted: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Of both outputs in dB, place by place and as sets; what became of the rows."""
    sets = row_sets(graph.graph)
    tallies = {one.node: RowTally() for one in sets}
    ordered = in_rows_of(wanted, got, sets, tallies)
    (told,) = compared_sets(sets, tallies)
    sides = [[side[name] for name in OUTPUTS] for side in (wanted, got)]
    return {
        "places_db": {name: sqnr_db(wanted[name], got[name]) for name in OUTPUTS},
        "sets_db": {name: sqnr_db(wanted[name], ordered[name]) for name in OUTPUTS},
        "moved_ratio": told.moved_ratio,
        "found_ratio": told.found_ratio,
        "detections_ratio": found_ratio(*sides, least_score=SURE, least_iou=SAME),
    }


def _add(out: Path, kind: str, row: dict[str, Any]) -> None:
    results = load_results(out, PACKAGES)
    results.setdefault("kinds", {})[kind] = row
    write_results(out, results, _page(results))


def _page(results: Mapping[str, Any]) -> str:
    head = ("model", "precision", "AP at 0.5", "AP at 0.75", "boxes, dB", "as sets", "logits, dB", "as sets",
            "rows elsewhere", "the same within 20 dB", "detections found")  # fmt: skip
    rows = []
    for kind, found in results["kinds"].items():
        for name, row in found["rows"].items():
            cells = [kind, name if name == "fp32" else f"int8, {name}"]
            cells += [number(row["ap50"], 3), number(row["ap75"], 3)]
            cells += [
                number(row.get(at, {}).get(output), 1)
                for output in reversed(OUTPUTS)
                for at in ("places_db", "sets_db")
            ]
            cells += [
                "" if row.get(key) is None else f"{row[key]:.1%}"
                for key in ("moved_ratio", "found_ratio", "detections_ratio")
            ]
            rows.append(cells)
    commits = ", ".join(f"{kind} at {found['commit']}" for kind, found in results["kinds"].items())
    return f"""# Detection transformers in int8 (CPU)

{machine_line(results["environment"])} Measured: {commits}.

Small detection transformers, trained for {STEPS} steps on drawn shapes, {JUDGED} others to judge on,
{CALIBRATION} for calibration, by `default`, in ONNX Runtime on the graph of either target. Their queries are
the rows with the best scores, in the order of these: noise in two like scores exchanges two rows of all
outputs. Place by place such rows are noise. As sets each row is held against the one that it is nearest to
([compare.md](../compare.md)). Detections are rows of FP32 above a score of {SURE}; found are those with a
row of the same class that overlaps by {SAME} or more.

{table(head, rows)}
Reproduce: `python -m benchmarks.detection_transformers train FOLDER {" ".join(KINDS)}`, then `judge`.
"""


if __name__ == "__main__":
    main()
