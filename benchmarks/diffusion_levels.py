# SPDX-License-Identifier: Apache-2.0
"""Many quantization levels of a network that denoises beside one fp16 engine: one set of rounded weights.

    python -m benchmarks.diffusion_levels FOLDER int8@1 int8@2 int8@2.5 int8@3 int8@4 int8@auto fp8@3

FOLDER is that of `benchmarks.diffusion`, after its steps `graph`, `weights` and `ranges`. What a build does
for every engine is done once: the model is quantized as far as it goes, and each level is that with some
layers back in floats; kernels, their times and the fp16 engine serve all. Each takes turns with fp16,
as a build times its candidates, is timed alone, as `benchmarks.diffusion peer` is, and compared with torch in
FP32. Rows go to FOLDER/RESULTS.json.
"""

__all__ = ["main"]

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np

from benchmarks.cuda.timing import enqueued, time_in_turns
from benchmarks.diffusion import (
    GRAPH,
    RANGES,
    config_of,
    feed_of,
    judged,
    net_of,
    options,
    record,
    references,
)
from quantrt.calibrate.stats import load_stats
from quantrt.config import BuildConfig
from quantrt.errors import DeviceError
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.fit.fit import Fitted, fit, sample_reference
from quantrt.quantize.mixed import keep_float
from quantrt.quantize.placement.levels import ATTENTION_LEVELS
from quantrt.reference.metrics import Error
from quantrt.runtime.peak_memory import peak_memory
from quantrt.tactics.candidates import Candidate, Opener, Rejected, Spec, code_targets
from quantrt.tactics.time_candidates import time_candidates

FP16 = "fp16"
WHOLE = "int8@auto"
REGIONS = "regions"
ALONE_ROUNDS = 10


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A network at many levels beside one fp16 engine.")
    options(parser)
    args = parser.parse_args(arguments)
    feed, inputs = feed_of(args), judged(args)
    wanted = references(net_of(args), inputs, args.device)
    shop = _Shop(for_gpu(load_model(args.folder / GRAPH)), args, feed)
    _compare(shop, args.engines, inputs, wanted)


def _compare(
    shop: "_Shop",
    names: Sequence[str],
    inputs: Sequence[Mapping[str, np.ndarray]],
    wanted: Sequence[np.ndarray],
) -> None:
    """Open fp16, then one level after the other, and note what each is beside it."""
    with ExitStack() as stack:
        config = config_of(shop.args, WHOLE)  # which allows what any level does
        opener = stack.enter_context(closing(Opener(shop.model, config, shop.feed)))
        floats = _opened(opener, Spec("cuda", FP16, FP16), None)
        stack.callback(floats.executor.close)
        for name in (FP16, *names):
            began = time.perf_counter()
            config = config_of(shop.args, name)
            found = floats
            if name != FP16:
                spec = _spec(name, config)
                found = _opened(opener, spec, shop.fitted(spec.precision, config))
            opened_s = time.perf_counter() - began
            latencies = time_candidates(
                {FP16: floats, name: found}, shop.feed, config, lambda done, total: None
            )
            row = {
                "ms": latencies[name].median_ms,
                "fp16_ms": latencies[FP16].median_ms,
                "alone_ms": _alone_ms(found, shop.feed),
                "sqnr_db": _sqnr_db(found, inputs, wanted),
                "bytes": found.model.size_bytes,
                "regions": _regions(found),
                "opened_s": opened_s,
                "took_s": time.perf_counter() - began,
                "peak_memory": peak_memory(),
            }
            record(shop.args, f"level {name}", row)
            if found is not floats:
                found.executor.close()


def _spec(name: str, config: BuildConfig) -> Spec:
    """Of PRECISION@LEVEL: attention is in floats below the levels that are for it."""
    is_float = config.quantize.quantization_level not in ATTENTION_LEVELS
    return Spec("cuda", name.partition("@")[0], FP16, float_attention=is_float)


class _Shop:
    """What all levels share: the model, and of each precision its weights in codes as far as they go."""

    def __init__(self, model: Model, args: argparse.Namespace, feed: dict[str, np.ndarray]) -> None:
        self.model, self.args, self.feed = model, args, feed
        self._whole: dict[str, Fitted] = {}

    def fitted(self, precision: str, config: BuildConfig) -> Fitted:
        """The quantized model of one level."""
        if precision not in self._whole:
            self._whole[precision] = self._fit(precision)
        return keep_float(self._whole[precision], {}, config.quantize)

    def _fit(self, precision: str) -> Fitted:
        config = config_of(self.args, f"{precision}@auto")
        reference = sample_reference(self.model, None, config.quantize, config.calibration)
        return fit(
            self.model,
            load_stats(self.args.folder / RANGES),
            code_targets(config, {})["cuda", precision],
            reference,
            config=config.quantize,
            calibration=config.calibration,
        )


def _opened(opener: Opener, spec: Spec, fitted: Fitted | None) -> Candidate:
    found = opener.open(spec, fitted)
    if isinstance(found, Rejected):
        raise DeviceError(f"cannot open {spec.name}", got=found.reason)
    return found


def _alone_ms(found: Candidate, feed: Mapping[str, np.ndarray]) -> float:
    """The median of ALONE_ROUNDS turns of nothing else, seconds in all: a GPU's clock falls as it warms."""
    return time_in_turns({"it": enqueued(found.executor, feed)}, ALONE_ROUNDS)["it"]["p50"]


def _sqnr_db(
    found: Candidate, inputs: Sequence[Mapping[str, np.ndarray]], wanted: Sequence[np.ndarray]
) -> float:
    error = Error()
    for batch, want in zip(inputs, wanted, strict=True):
        error.add(want, found.executor.run(batch)["out_sample"])
    return float(-10 * np.log10(max(error.noise_ratio, 1e-30)))


def _regions(found: Candidate) -> dict[str, Any]:
    """How many regions multiply codes of each kind; the rest of those with a product multiply floats."""
    rows = program_from_model(found.model).notes[REGIONS].values()
    return dict(Counter(row["codes"] or FP16 for row in rows if row["product"] is not None))


if __name__ == "__main__":
    main()
