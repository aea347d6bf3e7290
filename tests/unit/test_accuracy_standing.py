# SPDX-License-Identifier: Apache-2.0
"""Where `benchmarks` says `accurate` stands: among peers without a target, and beside control at its own."""

from benchmarks.accuracy import _timed
from benchmarks.accuracy_page import accuracy_page
from benchmarks.accuracy_standing import standing

HERE = {"cpu": "CPU", "available_cores": 2, "isa": ["avx2"], "packages": {"numpy": "2"}}


def compared(metric: str, peer: str, ours: float, theirs: float, error: float) -> dict:
    return {
        "metric": metric,
        "best_peer": peer,
        "quantrt": ours,
        "peer": theirs,
        "difference": ours - theirs,
        "standard_error": error,
        "lo": ours - theirs - 2 * error,
        "hi": ours - theirs + 2 * error,
        "verdict": "same",
    }


def judged(decibels: float, agreement: float, in_floats: int, ratio: float | None = None) -> dict:
    row = {"sqnr_db": {"logits": decibels}, "agreement_ratio": agreement, "products": 10}
    return row | {"in_floats": in_floats} | ({} if ratio is None else {"float_ratio": ratio})


def model() -> dict:
    """Control is ahead of `accurate` by agreement, and behind what it makes to the same target."""
    return {
        "commit": "later",
        "calibration_samples": 300,
        "validation_samples": 1000,
        "validation_sources": 1000,
        "note": "",
        "score_name": "",
        "float_score": None,
        "int8_library": "openvino",
        "range_methods": {},
        "contenders": {
            "quantrt accurate": judged(30.0, 0.96, 0),
            "accurate to target": judged(36.0, 0.99, 3, 0.25),
            "ort default": judged(20.0, 0.95, 0),
            "nncf control": judged(28.0, 0.98, 6, 0.5),
        },
        "comparisons": [],
        "accurate_comparisons": [
            compared("SQNR logits dB", "nncf control", 30.0, 28.0, 0.1),
            compared("agreement", "nncf control", 0.96, 0.98, 0.004),
        ],
        "all_codes_comparisons": [
            compared("SQNR logits dB", "ort default", 30.0, 20.0, 0.1),
            compared("agreement", "ort default", 0.96, 0.95, 0.02),
        ],
        "target_comparisons": [
            compared("SQNR logits dB", "nncf control", 36.0, 28.0, 0.1),
            compared("agreement", "nncf control", 0.99, 0.98, 0.004),
        ],
    }


def cells(row: dict) -> dict[str, str]:
    head, _, line = standing({"net": row}).splitlines()[-3:]
    return dict(zip(*(text.strip("| ").split(" | ") for text in (head, line)), strict=False))


def test_peers_with_a_target_stand_beside_what_is_made_to_it():
    found = cells(model())
    assert found["SQNR, dB"] == "30.00 (ort default 20.00, +10.00 ± 0.10) best"
    assert found["agreement, %"] == "96.00 (ort default 95.00, +1.00 ± 2.00) tied"
    assert found["`accurate` is"] == "best; nncf control is ahead by agreement"
    assert found["to the target"] == (
        "36.00 dB, 99.00 % with 3 of 10 in floats (25.0%); nncf control 28.00 dB, 98.00 % with 6 of 10 in "
        "floats (50.0%): SQNR logits dB +8.00 ± 0.10 best, agreement +1.00 ± 0.40 % best"
    )


def test_control_that_quantizes_nothing_is_ahead_in_nothing():
    row = model()
    row["contenders"]["nncf control"] = {"error": "it quantizes nothing"}
    row |= {"accurate_comparisons": row["all_codes_comparisons"], "target_comparisons": []}
    found = cells(row)
    assert found["`accurate` is"] == "best"
    assert found["to the target"] == ("36.00 dB, 99.00 % with 3 of 10 in floats (25.0%); nncf control failed")
    assert "nncf control" in found["without"]


def test_a_row_without_the_target_says_nothing_of_it():
    row = model()
    del row["contenders"]["accurate to target"], row["target_comparisons"]
    found = cells(row)
    assert found["to the target"] == ""
    assert found["`accurate` is"] == "best; nncf control is ahead by agreement", "that stays told"


def test_behind_says_of_whom():
    row = model()
    row["all_codes_comparisons"][1] = compared("agreement", "ort default", 0.94, 0.95, 0.004)
    assert cells(row)["`accurate` is"].startswith("behind ort default by agreement")


def test_a_library_that_is_kept_is_told_with_where_it_was_timed():
    earlier = {"int8_library": "onnxruntime", "commit": "first", "machine": "another, 2 cores (avx2)"}
    results = {"environment": HERE, "models": {"net": earlier}}
    timed = _timed(results, "net")
    assert timed == {"library": "onnxruntime", "commit": "first", "machine": "another, 2 cores (avx2)"}
    assert _timed(results, "unknown") is None
    results["models"]["net"] = model() | {"int8_library": "onnxruntime", "int8_timed": timed}
    assert _timed(results, "net") == timed, "of a row that kept it too"
    assert "| onnxruntime, as timed at first on another | later |" in accuracy_page(results)


def test_products_in_floats_are_told_of_every_contender():
    page = accuracy_page({"environment": HERE, "models": {"net": model()}})
    table = page.split("## Products in floats\n\n")[1].splitlines()
    found = dict(zip(*(line.split(" | ") for line in (table[0], table[2])), strict=True))
    assert found["accurate to target"] == "3 of 10" and found["nncf control"] == "6 of 10"
    assert found["nncf default"] == "", "it was not measured"
