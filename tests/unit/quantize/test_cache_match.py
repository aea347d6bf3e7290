# SPDX-License-Identifier: Apache-2.0
"""A cache beside a model: what applies, what does not, and when it is of another model."""

from dataclasses import replace

import numpy as np
import pytest

from quantrt.calibrate.caches.origin import Origin, scales_hash
from quantrt.calibrate.caches.trt_cache import TrtCache
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import DataError, UsageError
from quantrt.model.load import make_model
from quantrt.model.model import Fingerprint, Model
from quantrt.quantize.cache_match import CacheMatch, match_cache, match_notes
from quantrt.quantize.make_cache import float_activations
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import quantize
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.quantize.targets.tensorrt import TENSORRT
from tests.nets import net, observe, quantized, resnet, samples, weights

ALL = (*TARGETS, CUDA)
IMAGES = {"x": samples(4, 3, 16, 16)}


def scales_of(model: Model) -> dict[str, float]:
    """A different scale for every float tensor."""
    names = float_activations(model)
    return {name: float(np.float32(0.01 * (place + 1))) for place, name in enumerate(names)}


def cache_of(scales: dict[str, float], origin: Origin | None = None, **invalid: str) -> TrtCache:
    return TrtCache("x.cache", "TRT-8601-EntropyCalibration2", scales, invalid, origin)


def origin_of(model: Model, scales: dict[str, float], **fingerprint: str) -> Origin:
    mark = replace(model.fingerprint, **fingerprint)
    return Origin(mark, 1, "d", False, "minmax", scales_hash(scales))


def test_a_cache_of_the_model_gives_every_scale_bit_for_bit():
    model = resnet()
    scales = scales_of(model)
    match = match_cache(model, cache_of(scales), ALL)
    assert (match.missing, match.unknown, match.others, match.notes[:-1]) == ({}, {}, {}, ())
    for target in ALL:
        made = quantize(model, None, target, QuantizeConfig(), CalibrationConfig(), given=match.given)
        for name, qparams in made.activations.items():
            assert float(qparams.scale) == scales[match.used[name]]
            assert int(qparams.zero_point) == (128 if qparams.dtype.name == "uint8" else 0)


def test_a_tensor_that_only_moves_values_shares_the_scale():
    model = resnet()
    scales = scales_of(model)
    match = match_cache(model, cache_of(scales), ALL)
    assert match.given.scales["pool"] == scales["r2"] != scales["pool"]
    assert match.used.get("pool", "r2") == "r2"
    assert "their own, such as 'pool' that of 'r2'" in match.notes[-1]


def test_a_missing_scale_costs_its_readers_and_no_others():
    model = resnet()
    scales = scales_of(model)
    del scales["r1"]
    match = match_cache(model, cache_of(scales), (OPENVINO,))
    conv = next(node.name for node in model.graph.graph if node.outputs[0].name == "c2")
    assert match.missing == {"r1": {"openvino": (conv,)}}
    assert "r1" not in match.used
    notes = " ".join(match_notes(match, None))
    assert "no scale of 1 tensor ('r1')" in notes and f"'{conv}'" in notes and "float" in notes
    observed = " ".join(match_notes(match, observe(model, (OPENVINO,), IMAGES)))
    assert "observed on data instead" in observed and "float" not in observed


def test_an_invalid_scale_is_a_missing_one():
    model = resnet()
    scales = scales_of(model)
    del scales["r1"]
    match = match_cache(model, cache_of(scales, r1="infinite"), ALL)
    assert "r1" in match.missing
    assert match.invalid == {"r1": "infinite"}
    assert any("1 scales cannot be used, such as that of 'r1': infinite" in note for note in match.notes)


def test_data_fill_the_gaps_and_leave_the_given_scales():
    model = resnet()
    scales = scales_of(model)
    del scales["r1"]
    match = match_cache(model, cache_of(scales), (TENSORRT,))
    stats = observe(model, (TENSORRT,), IMAGES)
    made = quantize(model, stats, TENSORRT, QuantizeConfig(), CalibrationConfig(), given=match.given)
    alone = quantized(model, TENSORRT, IMAGES)
    assert made.placement == alone.placement
    assert float(made.activations["r1"].scale) == float(alone.activations["r1"].scale)
    assert float(made.activations["r0"].scale) == scales["r0"] != float(alone.activations["r0"].scale)


def test_a_group_that_is_half_given_and_half_observed_holds_both():
    text = """net (float[N,4,8,8] x) => (float[N,4,16,8] y) {
    a = Conv<pads=[1,1,1,1]>(x, w) b = Conv<pads=[1,1,1,1]>(x, v)
    c = Concat<axis=2>(a, b) y = Conv<pads=[1,1,1,1]>(c, u) }"""
    model = net(text, weights({"w": (4, 4, 3, 3), "v": (4, 4, 3, 3), "u": (4, 4, 3, 3)}))
    stats = observe(model, (TENSORRT,), {"x": samples(4, 4, 8, 8)})
    amax = max(-stats.tensors["b"].lo, stats.tensors["b"].hi)
    for scale in (1e-4, 1.0):
        match = match_cache(model, cache_of({"x": 0.1, "a": scale}), (TENSORRT,))
        made = quantize(model, stats, TENSORRT, QuantizeConfig(), CalibrationConfig(), given=match.given)
        assert made.activations["a"] == made.activations["b"]
        assert float(made.activations["a"].scale) == pytest.approx(max(scale, amax / 127), rel=1e-6)


def test_names_that_canonicalization_took_away_are_found_where_values_are_the_same():
    text = """net (float[N,3,8,8] x) => (float[N,4,8,8] y) {
      c = Conv<pads=[1,1,1,1]>(x, w)  n = BatchNormalization(c, scale, shift, mean, var)
      i = Identity(n)  y = Conv<pads=[1,1,1,1]>(i, v) }"""
    arrays = weights(
        {
            "w": (4, 3, 3, 3),
            "v": (4, 4, 3, 3),
            **dict.fromkeys(("scale", "shift", "mean", "var"), (4,)),
        }
    )
    arrays["var"] = np.abs(arrays["var"]) + 1
    model = net(text, arrays)
    match = match_cache(model, cache_of({"x": 0.5, "c": 0.25, "i": 0.125, "w": 1.0, "y": 1.0}), ALL)
    assert match.used == {"x": "x", "n": "i", "y": "y"}
    assert match.given.scales["n"] == 0.125
    assert match.missing == {}
    assert "folded" in match.unknown["c"] and "constant" in match.unknown["w"]
    own = match_cache(model, cache_of({"x": 0.5, "i": 0.125, "n": 0.25}), ALL)
    assert own.given.scales["n"] == 0.25, "a line of its own comes first"


def test_tensors_of_tensorrt_s_own_are_no_sign_of_another_model():
    model = resnet()
    own = {f"(Unnamed Layer* {i}) [Shuffle]_output": 1.0 for i in range(100)}
    match = match_cache(model, cache_of({**scales_of(model), **own}), ALL)
    assert set(match.unknown) == set(own)
    assert set(match.unknown.values()) == {"a tensor of TensorRT's own network"}


def renamed(scales: dict[str, float], count: int) -> dict[str, float]:
    return {
        (f"{name}_old" if place < count else name): scale
        for place, (name, scale) in enumerate(scales.items())
    }


def test_a_few_names_that_are_gone_are_reported_and_many_are_another_graph():
    model = resnet()
    scales = scales_of(model)
    few = match_cache(model, cache_of(renamed(scales, len(scales) // 4)), ALL)
    assert few.unknown["c0_old"] == "the model has no such tensor, nearest 'c0'"
    assert "x" in few.missing
    with pytest.raises(DataError, match="made for another graph") as caught:
        match_cache(model, cache_of(renamed(scales, len(scales) // 4 + 1)), ALL)
    assert "'c0_old', nearest 'c0'" in (caught.value.got or "")
    assert "1 more" in (caught.value.got or "") and "--calib-data" in (caught.value.hint or "")


def test_one_name_that_is_gone_is_enough_where_the_origin_tells():
    model = resnet()
    scales = renamed(scales_of(model), 1)
    with pytest.raises(DataError, match=r"another graph, 1 of its 14 tensors") as caught:
        match_cache(model, cache_of(scales, origin_of(model, scales, graph="0" * 64)), ALL)
    assert caught.value.expected == "every tensor"


def test_another_graph_with_the_same_tensors_and_other_weights_are_notes():
    model = resnet()
    scales = scales_of(model)
    notes = {
        what: match_cache(model, cache_of(scales, origin_of(model, scales, **{what: "0" * 64})), ALL).notes
        for what in ("graph", "weights")
    }
    assert any("another graph, which had the same tensors" in note for note in notes["graph"])
    assert any("another checkpoint" in note for note in notes["weights"])
    same = match_cache(model, cache_of(scales, origin_of(model, scales)), ALL).notes
    assert not any("another" in note for note in same)


def test_a_cache_that_gives_no_range_at_all_is_an_error():
    model = resnet()
    with pytest.raises(DataError, match="no scale of the 9 tensors") as caught:
        match_cache(model, cache_of({"y": 1.0}), ALL)
    assert caught.value.got is not None


def test_a_model_without_anything_to_quantize_is_an_error():
    model = net("net (float[1,4] x) => (float[1,4] y) { y = Relu(x) }")
    with pytest.raises(DataError, match="no target quantizes anything"):
        match_cache(model, cache_of({"x": 1.0}), ALL)


def test_a_model_that_is_quantized_already_keeps_its_own_scales():
    model = make_model(write(quantized(resnet(), TENSORRT, IMAGES)))
    with pytest.raises(UsageError, match="quantized already"):
        match_cache(model, cache_of({"x": 1.0}), ALL)


def test_exclusions_are_heeded():
    model = resnet()
    scales = scales_of(model)
    del scales["r1"]
    conv = next(node.name for node in model.graph.graph if node.outputs[0].name == "c2")
    match: CacheMatch = match_cache(model, cache_of(scales), (CUDA,), QuantizeConfig(exclude=(conv,)))
    assert match.missing == {}


def test_the_fingerprint_of_an_origin_is_of_both_parts():
    assert Fingerprint("a", "b") != Fingerprint("a", "c")
