# SPDX-License-Identifier: Apache-2.0
"""Flags of trtexec about inference, reports, the system and build routes, a row each."""

from __future__ import annotations

from quantrt.trtexec.flags.flag import ALL, OWN, SINCE_10, V11, Effect, Flag, Form

__all__ = ["INFERENCE_FLAGS", "REPORTING_FLAGS", "SYSTEM_FLAGS", "TUNING_FLAGS"]

_DOES, _NOTHING, _REFUSED = Effect.DOES, Effect.NOTHING, Effect.REFUSED
_ONLY_11 = (V11,)

_NO_PLUGINS = "there are no plugins: operators are ONNX's, those without a kernel run on the reference"
_NO_DEBUG = "engines keep no tensors inside: `quantrt compare --layers` looks into a model"
_NO_ROUTES = "build routes are switches of TensorRT's compiler"

INFERENCE_FLAGS = (
    Flag("--shapes", ALL, Form.SHAPES, _DOES, "shapes of the inputs; without it those of the profile"),
    Flag(
        "--loadInputs", ALL, Form.FILES, _DOES, "inputs from raw binary files; random values without",
        repeats=True,
    ),
    Flag("--iterations", ALL, Form.WHOLE, _DOES, "inferences to time, at least (10)"),
    Flag("--warmUp", ALL, Form.NUMBER, _DOES, "milliseconds whose inferences are not counted (200)"),
    Flag("--duration", ALL, Form.NUMBER, _DOES, "seconds to go on for, at least; -1 without end (3)"),
    Flag("--sleepTime", ALL, Form.NUMBER, _DOES, "0 is accepted; nothing waits between launch and compute"),
    Flag("--idleTime", ALL, Form.NUMBER, _DOES, "milliseconds to wait after each inference (0)"),
    Flag("--infStreams", ALL, Form.WHOLE, _DOES, "inferences at once, each in a context of its own (1)"),
    Flag("--streams", ALL, Form.WHOLE, _DOES, "as --infStreams", same_as="--infStreams", is_hidden=True),
    Flag("--exposeDMA", ALL, Form.SWITCH, _NOTHING, "copies and computation of a stream never overlap"),
    Flag("--noDataTransfers", ALL, Form.SWITCH, _DOES, "on a GPU leaves out the copies to it and from it"),
    Flag("--includeDataTransfers", _ONLY_11, Form.SWITCH, _NOTHING, "copies are in unless left out"),
    Flag("--useManagedMemory", ALL, Form.SWITCH, _REFUSED, "copies go by way of pinned memory"),
    Flag("--useSpinWait", ALL, Form.SWITCH, _DOES, "on a GPU the host polls for results instead of sleeping"),
    Flag("--noSpinWait", _ONLY_11, Form.SWITCH, _NOTHING, "the host sleeps unless --useSpinWait is given"),
    Flag("--threads", ALL, Form.SWITCH, _DOES, "a thread per stream; on a CPU always"),
    Flag("--useCudaGraph", ALL, Form.SWITCH, _NOTHING, "on a GPU a run is a CUDA graph wherever it can be"),
    Flag("--noCudaGraph", _ONLY_11, Form.SWITCH, _DOES, "on a GPU runs step by step"),
    Flag(
        "--separateProfileRun", ALL, Form.SWITCH, _NOTHING, "layers are always timed in runs of their own"
    ),
    Flag("--timeDeserialize", ALL, Form.SWITCH, _DOES, "times how long opening --loadEngine takes, and ends"),
    Flag("--timeRefit", ALL, Form.SWITCH, _REFUSED, "engines cannot be refitted"),
    Flag("--persistentCacheRatio", ALL, Form.NUMBER, _DOES, "0 is accepted; no part of L2 can be set aside"),
    Flag("--useProfile", SINCE_10, Form.WHOLE, _DOES, "the profile whose shapes the inputs get (0)"),
    Flag(
        "--allocationStrategy", SINCE_10, Form.TEXT, _NOTHING,
        "activations of each set of shapes have memory of their own",
        choices=("static", "profile", "runtime"),
    ),
    Flag("--saveDebugTensors", SINCE_10, Form.FILES, _REFUSED, _NO_DEBUG),
    Flag("--saveAllDebugTensors", SINCE_10, Form.TEXT, _REFUSED, _NO_DEBUG),
    Flag("--weightStreamingBudget", SINCE_10, Form.TEXT, _REFUSED, "weights are not streamed"),
    Flag(
        "--loadRefOutputs", _ONLY_11, Form.FILES, _DOES, "outputs to compare with, from raw binary files",
        repeats=True,
    ),
    Flag(
        "--accuracyAlgorithm", _ONLY_11, Form.TEXT, _DOES,
        "loss against --loadRefOutputs: l0 share outside atol + rtol |ref| (default), l1 mean and l2 mean "
        "square, lInf largest, cos 1 - cosine",
        choices=("l0", "l1", "l2", "lInf", "cos"),
    ),
    Flag("--accuracyThreshold", _ONLY_11, Form.NUMBER, _DOES, "largest loss that passes; needed to compare"),
    Flag("--atol", _ONLY_11, Form.NUMBER, _DOES, "absolute tolerance of l0 (1e-5)"),
    Flag("--rtol", _ONLY_11, Form.NUMBER, _DOES, "relative tolerance of l0 (1e-5)"),
    Flag(
        "--refPair", _ONLY_11, Form.WHOLE, _DOES, "begins pair N of --loadInputs and --loadRefOutputs",
        repeats=True,
    ),
)  # fmt: skip

REPORTING_FLAGS = (
    Flag("--verbose", ALL, Form.SWITCH, _DOES, "logs every node, and what the figures mean"),
    Flag("--avgRuns", ALL, Form.WHOLE, _DOES, "inferences per line of the trace (10)"),
    Flag("--percentile", ALL, Form.PERCENTS, _DOES, "percentiles of the summary (90,95,99)"),
    Flag("--dumpRefit", ALL, Form.SWITCH, _REFUSED, "engines cannot be refitted"),
    Flag("--dumpOutput", ALL, Form.SWITCH, _DOES, "prints the outputs"),
    Flag(
        "--dumpRawBindingsToFile",
        ALL,
        Form.SWITCH,
        _DOES,
        "writes inputs and outputs as raw binary files here",
    ),
    Flag("--dumpProfile", ALL, Form.SWITCH, _DOES, "prints the time of every layer"),
    Flag("--dumpLayerInfo", ALL, Form.SWITCH, _DOES, "prints the layers"),
    Flag("--dumpOptimizationProfile", SINCE_10, Form.SWITCH, _DOES, "prints the shapes of every profile"),
    Flag("--exportTimes", ALL, Form.FILE, _DOES, "writes the times of every inference as JSON"),
    Flag("--exportOutput", ALL, Form.FILE, _DOES, "writes the outputs as JSON"),
    Flag("--exportProfile", ALL, Form.FILE, _DOES, "writes the time of every layer as JSON"),
    Flag("--exportLayerInfo", ALL, Form.FILE, _DOES, "writes the layers as JSON"),
)

SYSTEM_FLAGS = (
    Flag("--device", ALL, Form.TEXT, _DOES, "0 for the GPU, or the CPU where there is none; cpu for the CPU"),
    Flag("--useDLACore", ALL, Form.WHOLE, _REFUSED, "there is no DLA"),
    Flag("--staticPlugins", ALL, Form.FILE, _REFUSED, _NO_PLUGINS, repeats=True),
    Flag(
        "--plugins", ALL, Form.FILE, _REFUSED, _NO_PLUGINS, same_as="--staticPlugins", repeats=True,
        is_hidden=True,
    ),
    Flag("--dynamicPlugins", ALL, Form.FILE, _REFUSED, _NO_PLUGINS, repeats=True),
    Flag("--setPluginsToSerialize", ALL, Form.FILE, _REFUSED, _NO_PLUGINS, repeats=True),
    Flag("--ignoreParsedPluginLibs", ALL, Form.SWITCH, _NOTHING, "engine files hold no plugins"),
    Flag("--safetyPlugins", SINCE_10, Form.TEXT, _REFUSED, _NO_PLUGINS, repeats=True),
    Flag("--help", ALL, Form.SWITCH, _DOES, "this table, shorter"),
    Flag("-h", ALL, Form.SWITCH, _DOES, "as --help", same_as="--help"),
    Flag("-v", ALL, Form.SWITCH, _DOES, "as --verbose", same_as="--verbose", is_hidden=True),
    Flag("--serialized", ALL, Form.FILE, _REFUSED, "there is no safety runtime", is_hidden=True),
    Flag("--std", ALL, Form.SWITCH, _REFUSED, "there is no safety runtime", is_hidden=True),
    Flag("--install-shim", OWN, Form.FOLDER, _DOES, "writes an executable trtexec into a folder, and ends"),
    Flag("--force", OWN, Form.SWITCH, _DOES, "lets --install-shim replace another trtexec"),
    Flag("--json", OWN, Form.SWITCH, _DOES, "the summary as one JSON document on stdout, the log on stderr"),
    Flag("--traceback", OWN, Form.SWITCH, _DOES, "shows where in the code an error came from"),
    Flag("-q", OWN, Form.SWITCH, _DOES, "no log of the build, warnings only; trtexec's own lines stay"),
    Flag("--quiet", OWN, Form.SWITCH, _DOES, "as -q", same_as="-q"),
)  # fmt: skip

TUNING_FLAGS = (
    Flag("--tuneBuildRoutes", _ONLY_11, Form.TEXT, _REFUSED, _NO_ROUTES),
    Flag("--tuneBuildRouteFile", _ONLY_11, Form.FILE, _REFUSED, _NO_ROUTES),
    Flag("--tuningSearch", _ONLY_11, Form.TEXT, _REFUSED, _NO_ROUTES, choices=("fast", "full", "mixed")),
    Flag("--tuningCacheFile", _ONLY_11, Form.FILE, _REFUSED, _NO_ROUTES),
    Flag("--tuningResultFile", _ONLY_11, Form.FILE, _REFUSED, _NO_ROUTES, is_hidden=True),
    Flag("--tuningTimeOut", _ONLY_11, Form.NUMBER, _REFUSED, _NO_ROUTES),
    Flag("--saveAllEngines", _ONLY_11, Form.SWITCH, _REFUSED, _NO_ROUTES),
    Flag("--dryRun", _ONLY_11, Form.SWITCH, _REFUSED, _NO_ROUTES),
    Flag("--continue", _ONLY_11, Form.SWITCH, _REFUSED, _NO_ROUTES),
    Flag("--helpBuildRoute", _ONLY_11, Form.TEXT, _REFUSED, _NO_ROUTES),
    Flag("--setBuildRoute", _ONLY_11, Form.TEXT, _REFUSED, _NO_ROUTES),
)
