# SPDX-License-Identifier: Apache-2.0
"""Flags of trtexec about the model and how its engine is built, a row each."""

from __future__ import annotations

from quantrt.trtexec.flags.flag import ALL, OWN, SINCE_10, UNTIL_10, V8, V10, Effect, Flag, Form

__all__ = ["BUILD_FLAGS", "CALIBRATION_FLAGS", "MODEL_FLAGS", "PRECISION_FLAGS"]

_DOES, _NOTHING, _REFUSED = Effect.DOES, Effect.NOTHING, Effect.REFUSED
_ONLY_8, _ONLY_10 = (V8,), (V10,)

_CONVERT = "Caffe and UFF models have to be converted to ONNX"
_NO_BATCH = "an ONNX model has its batch in its shapes: --shapes or --optShapes"
_NO_REFIT = "engines cannot be refitted: weights are stored in the form that kernels read"
_NO_DLA = "there is no DLA to build for"
_NO_SAFETY = "there is no safety runtime"
_NO_STREAMING = "weights stay on the device, or where the engine file is mapped"
_NO_DEBUG = "engines keep no tensors inside: `quantrt compare --layers` looks into a model"
_ONE_RUNTIME = "there is one runtime, and it reads engine files of every older version"
_NO_PLUGINS = "there are no plugins: operators are ONNX's, those without a kernel run on the reference"
_IN_TYPE = (
    "inputs of these types, int8 by ranges; chw, hwc, and formats with padding where nothing is to be padded"
)
_OUT_TYPE = "outputs of these types and formats, as for inputs; floats are floats or int8 codes"

MODEL_FLAGS = (
    Flag("--onnx", ALL, Form.FILE, _DOES, "the model"),
    Flag("--model", _ONLY_8, Form.FILE, _REFUSED, _CONVERT),
    Flag("--deploy", _ONLY_8, Form.FILE, _REFUSED, _CONVERT),
    Flag("--output", _ONLY_8, Form.TEXT, _REFUSED, "the outputs are those of the ONNX model", repeats=True),
    Flag("--uff", _ONLY_8, Form.FILE, _REFUSED, _CONVERT),
    Flag("--uffInput", _ONLY_8, Form.TEXT, _REFUSED, _CONVERT, repeats=True),
    Flag("--uffNHWC", _ONLY_8, Form.SWITCH, _REFUSED, _CONVERT),
)

PRECISION_FLAGS = (
    Flag("--fp16", UNTIL_10, Form.SWITCH, _DOES, "allows float16; a CPU has no kernels for it, and says so"),
    Flag("--bf16", _ONLY_10, Form.SWITCH, _DOES, "allows bfloat16; a CPU without its instructions says so"),
    Flag(
        "--int8", UNTIL_10, Form.SWITCH, _DOES,
        "allows int8, and the device's best float precision beside it; without ranges an error",
    ),
    Flag(
        "--fp8", UNTIL_10, Form.SWITCH, _DOES,
        "allows fp8 (E4M3) for products, on a GPU from Ada (8.9) on, beside --int8 if that is given; needs "
        "ranges as it does; a CPU has no kernels for it, and says so",
    ),
    Flag("--int4", _ONLY_10, Form.SWITCH, _REFUSED, "for weights alone: `quantrt build --weights int4`"),
    Flag("--best", UNTIL_10, Form.SWITCH, _DOES, "allows every precision that the device has"),
    Flag(
        "--stronglyTyped", SINCE_10, Form.SWITCH, _DOES,
        "no precision but those of the model's own types and Q/DQ nodes",
    ),
    Flag("--noTF32", ALL, Form.SWITCH, _NOTHING, "no kernel here rounds float32 to TF32"),
    Flag(
        "--precisionConstraints", UNTIL_10, Form.TEXT, _DOES,
        "with obey what cannot be kept is an error, with prefer a warning; none, the default, drops them",
        choices=("none", "obey", "prefer"),
    ),
    Flag(
        "--layerPrecisions", UNTIL_10, Form.LAYERS, _DOES,
        "fp32 or fp16 keeps an ONNX node out of int8 and fp8; neither can be forced on one",
    ),
    Flag(
        "--layerOutputTypes", UNTIL_10, Form.LAYERS, _DOES,
        "what layers store: any float or int8 on a GPU; on a CPU fp32 keeps a layer's output out of int8",
    ),
    Flag(
        "--layerDeviceTypes", ALL, Form.LAYERS, _DOES,
        "GPU for every layer is accepted; DLA is refused, for there is none",
    ),
    Flag(
        "--decomposableAttentions", SINCE_10, Form.TEXT, _NOTHING,
        "attention is found in the graph, and runs in pieces where no kernel holds it",
    ),
    Flag(
        "--sparsity", ALL, Form.TEXT, _DOES, "no kernel uses 2:4 sparsity: force is refused",
        choices=("disable", "enable", "force"),
    ),
)  # fmt: skip

CALIBRATION_FLAGS = (
    Flag("--calib", UNTIL_10, Form.FILE, _DOES, "ranges from a TensorRT calibration cache; it has to exist"),
    Flag(
        "--calib-data",
        OWN,
        Form.FILE,
        _DOES,
        "calibrates on these data: .npz, or a folder of arrays or images",
    ),
    Flag(
        "--calib-random", OWN, Form.SWITCH, _DOES, "ranges of random data, for speed alone; marks the engine"
    ),
    Flag(
        "--valid-data", OWN, Form.FILE, _DOES, "measures the accuracy against the float model on these data"
    ),
    Flag("--preprocess", OWN, Form.TEXT, _DOES, "how images of the data become tensors, as in quantrt build"),
    Flag(
        "--minShapesCalib", UNTIL_10, Form.SHAPES, _NOTHING, "data are calibrated on in the shapes they have"
    ),
    Flag(
        "--optShapesCalib", UNTIL_10, Form.SHAPES, _NOTHING, "data are calibrated on in the shapes they have"
    ),
    Flag(
        "--maxShapesCalib", UNTIL_10, Form.SHAPES, _NOTHING, "data are calibrated on in the shapes they have"
    ),
    Flag("--calibProfile", _ONLY_10, Form.WHOLE, _NOTHING, "data are calibrated on in the shapes they have"),
)

BUILD_FLAGS = (
    Flag("--minShapes", ALL, Form.SHAPES, _DOES, "least shapes of a profile", repeats=True),
    Flag(
        "--optShapes", ALL, Form.SHAPES, _DOES,
        "shapes that kernels are chosen at; alone they are the least and largest too", repeats=True,
    ),
    Flag("--maxShapes", ALL, Form.SHAPES, _DOES, "largest shapes of a profile", repeats=True),
    Flag(
        "--profile", SINCE_10, Form.WHOLE, _DOES, "begins profile N, with shapes of its own behind it",
        repeats=True,
    ),
    Flag("--inputIOFormats", ALL, Form.IO_FORMATS, _DOES, _IN_TYPE),
    Flag("--outputIOFormats", ALL, Form.IO_FORMATS, _DOES, _OUT_TYPE),
    Flag(
        "--memPoolSize", ALL, Form.POOLS, _DOES,
        "workspace bounds scratch memory on a GPU; a DLA's pools do nothing, tacticSharedMem is refused",
    ),
    Flag("--workspace", _ONLY_8, Form.NUMBER, _DOES, "scratch memory of kernels on a GPU, at most, in MiB"),
    Flag(
        "--profilingVerbosity", ALL, Form.TEXT, _DOES,
        "detailed writes layers with all that is known of them, layer_names_only their names, none nothing",
        choices=("layer_names_only", "detailed", "none", "default", "verbose"),
    ),
    Flag(
        "--nvtxMode", _ONLY_8, Form.TEXT, _DOES, "as --profilingVerbosity", same_as="--profilingVerbosity",
        choices=("layer_names_only", "detailed", "none", "default", "verbose"),
    ),
    Flag("--avgTiming", ALL, Form.WHOLE, _NOTHING, "tactics are timed until enough runs agree"),
    Flag("--minTiming", _ONLY_8, Form.WHOLE, _NOTHING, "tactics are timed until enough runs agree"),
    Flag("--refit", ALL, Form.SWITCH, _REFUSED, _NO_REFIT),
    Flag("--stripWeights", SINCE_10, Form.SWITCH, _REFUSED, _NO_REFIT),
    Flag("--stripAllWeights", SINCE_10, Form.SWITCH, _REFUSED, _NO_REFIT),
    Flag("--weightless", _ONLY_10, Form.SWITCH, _REFUSED, _NO_REFIT, same_as="--stripWeights"),
    Flag("--refitFromOnnx", SINCE_10, Form.FILE, _REFUSED, _NO_REFIT),
    Flag("--versionCompatible", ALL, Form.SWITCH, _NOTHING, _ONE_RUNTIME),
    Flag("--vc", ALL, Form.SWITCH, _NOTHING, _ONE_RUNTIME, same_as="--versionCompatible"),
    Flag("--excludeLeanRuntime", ALL, Form.SWITCH, _NOTHING, "no runtime is put into an engine file"),
    Flag("--leanDLLPath", ALL, Form.FILE, _REFUSED, _ONE_RUNTIME),
    Flag(
        "--useRuntime", ALL, Form.TEXT, _DOES, "full is what there is; lean and dispatch are refused",
        choices=("full", "lean", "dispatch"),
    ),
    Flag("--pluginInstanceNorm", SINCE_10, Form.SWITCH, _NOTHING, "InstanceNormalization has a kernel"),
    Flag(
        "--pi", SINCE_10, Form.SWITCH, _NOTHING, "InstanceNormalization has a kernel",
        same_as="--pluginInstanceNorm",
    ),
    Flag("--nativeInstanceNorm", _ONLY_8, Form.SWITCH, _NOTHING, "InstanceNormalization has a kernel"),
    Flag(
        "--ni", _ONLY_8, Form.SWITCH, _NOTHING, "InstanceNormalization has a kernel",
        same_as="--nativeInstanceNorm",
    ),
    Flag("--enablePluginOverride", SINCE_10, Form.SWITCH, _REFUSED, _NO_PLUGINS),
    Flag("--uint8AsymmetricQuantizationDLA", SINCE_10, Form.SWITCH, _REFUSED, _NO_DLA),
    Flag("--reportCapabilityDLA", SINCE_10, Form.SWITCH, _REFUSED, _NO_DLA),
    Flag("--adjustForDLA", SINCE_10, Form.SWITCH, _REFUSED, _NO_DLA),
    Flag("--directIO", ALL, Form.SWITCH, _REFUSED, "kernels may read another layout than inputs have"),
    Flag("--safe", ALL, Form.SWITCH, _REFUSED, _NO_SAFETY),
    Flag("--consistency", ALL, Form.SWITCH, _REFUSED, _NO_SAFETY),
    Flag("--restricted", UNTIL_10, Form.SWITCH, _REFUSED, _NO_SAFETY),
    Flag("--dumpKernelText", SINCE_10, Form.SWITCH, _REFUSED, _NO_SAFETY),
    Flag("--cpuOnly", SINCE_10, Form.SWITCH, _REFUSED, f"{_NO_SAFETY}; --device=cpu builds for this CPU"),
    Flag("--remoteAutoTuningConfig", SINCE_10, Form.TEXT, _REFUSED, "engines are timed on this machine"),
    Flag("--buildDLAStandalone", ALL, Form.SWITCH, _REFUSED, _NO_DLA),
    Flag("--allowGPUFallback", ALL, Form.SWITCH, _NOTHING, "every layer runs on the one device there is"),
    Flag("--saveEngine", ALL, Form.FILE, _DOES, "writes the engine, an engine file of QuantRT's"),
    Flag("--loadEngine", ALL, Form.FILE, _DOES, "opens an engine file of QuantRT's in place of a model"),
    Flag("--asyncFileReader", SINCE_10, Form.SWITCH, _NOTHING, "engine files are mapped, not read"),
    Flag("--getPlanVersionOnly", SINCE_10, Form.SWITCH, _DOES, "tells the format of --loadEngine, and ends"),
    Flag("--skipInference", ALL, Form.SWITCH, _DOES, "ends when the engine is built"),
    Flag("--buildOnly", _ONLY_8, Form.SWITCH, _DOES, "as --skipInference", same_as="--skipInference"),
    Flag(
        "--tacticSources", ALL, Form.SIGNED, _DOES,
        "on a GPU leaves out CUBLAS, CUBLAS_LT, CUDNN, QuantRT's own TRITON and TORCH; no others are there",
    ),
    Flag("--noBuilderCache", ALL, Form.SWITCH, _DOES, "neither reads nor writes --timingCacheFile"),
    Flag("--noCompilationCache", SINCE_10, Form.SWITCH, _NOTHING, "no machine code is kept between builds"),
    Flag("--timingCacheFile", ALL, Form.FILE, _DOES, "timings of kernels on a GPU, in QuantRT's own JSON"),
    Flag(
        "--errorOnTimingCacheMiss", SINCE_10, Form.SWITCH, _DOES,
        "on a GPU a build that had to time what --timingCacheFile lacks is an error",
    ),
    Flag(
        "--builderOptimizationLevel", ALL, Form.WHOLE, _DOES,
        "on a GPU 0 times no kernel, 3 the likely ones, 5 all; on a CPU the higher, the longer is timed",
    ),
    Flag("--heuristic", _ONLY_8, Form.SWITCH, _DOES, "as --builderOptimizationLevel=2"),
    Flag("--maxTactics", SINCE_10, Form.WHOLE, _NOTHING, "--builderOptimizationLevel bounds the search"),
    Flag("--tilingOptimizationLevel", SINCE_10, Form.WHOLE, _NOTHING, "layers are not tiled across L2"),
    Flag("--l2LimitForTiling", SINCE_10, Form.WHOLE, _NOTHING, "layers are not tiled across L2"),
    Flag("--maxAuxStreams", ALL, Form.WHOLE, _NOTHING, "an inference runs on one stream, and needs no other"),
    Flag("--preview", ALL, Form.SIGNED, _NOTHING, "the features that it switches are not there"),
    Flag(
        "--hardwareCompatibilityLevel", ALL, Form.TEXT, _DOES,
        "on a GPU ampere+ compiles kernels for every GPU from sm_80 on; sameComputeCapability always holds",
        choices=("none", "ampere+", "sameComputeCapability"),
    ),
    Flag(
        "--runtimePlatform", SINCE_10, Form.TEXT, _DOES, "WindowsAMD64 is refused",
        choices=("SameAsBuild", "WindowsAMD64"),
    ),
    Flag("--tempdir", ALL, Form.FOLDER, _NOTHING, "files are written beside their destination, then renamed"),
    Flag("--tempfileControls", ALL, Form.TEXT, _NOTHING, "no code is loaded from temporary files"),
    Flag("--allowWeightStreaming", SINCE_10, Form.SWITCH, _REFUSED, _NO_STREAMING),
    Flag("--markDebug", SINCE_10, Form.TEXT, _REFUSED, _NO_DEBUG),
    Flag("--markUnfusedTensorsAsDebugTensors", SINCE_10, Form.SWITCH, _REFUSED, _NO_DEBUG),
    Flag("--monitorMemory", SINCE_10, Form.SWITCH, _NOTHING, "`quantrt inspect` shows what an engine takes"),
    Flag(
        "--distributiveIndependence", SINCE_10, Form.SWITCH, _NOTHING,
        "an output never depends on other samples of its batch", is_hidden=True,
    ),
    Flag("--batch", _ONLY_8, Form.WHOLE, _REFUSED, _NO_BATCH),
    Flag("--maxBatch", _ONLY_8, Form.WHOLE, _REFUSED, _NO_BATCH),
    Flag("--explicitBatch", _ONLY_8, Form.SWITCH, _NOTHING, "the batch is always in the shapes"),
    Flag("--explicitPrecision", _ONLY_8, Form.SWITCH, _NOTHING, "Q/DQ nodes of a model are always kept"),
)  # fmt: skip
