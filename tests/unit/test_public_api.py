# SPDX-License-Identifier: Apache-2.0
"""What `quantrt` offers is what its modules say they offer, and naming it costs no library."""

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import quantrt

HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "openvino", "scipy", "rich", "PIL", "torch", "triton")
"""Packages that `import quantrt` may not load."""


def module_names() -> list[str]:
    """Every module of the package except `__main__`, which runs the command when imported."""
    found = pkgutil.walk_packages(quantrt.__path__, "quantrt.")
    return ["quantrt", *sorted(module.name for module in found if module.name != "quantrt.__main__")]


@pytest.mark.parametrize("name", quantrt.__all__)
def test_each_public_name_loads(name: str):
    assert getattr(quantrt, name) is not None


def test_dir_lists_the_public_names():
    assert set(dir(quantrt)) == set(quantrt.__all__)


def test_type_checkers_are_told_to_read_the_annotations():
    """PEP 561: without the marker they take everything of the package for Any."""
    assert (Path(quantrt.__path__[0]) / "py.typed").is_file()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = quantrt.no_such_name


@pytest.mark.parametrize("name", module_names())
def test_all_lists_exactly_what_a_module_defines_for_others(name: str):
    if name.startswith("quantrt.operators."):
        pytest.importorskip("torch", reason="quantrt.operators needs torch")
    module = importlib.import_module(name)
    listed = set(getattr(module, "__all__", ()))  # a package that is only a docstring has none
    missing = {item for item in listed if not hasattr(module, item)}
    assert not missing, (
        f"{name}.__all__ lists names that are not there; define them or delete them from __all__"
    )
    defined = {
        item
        for item, value in vars(module).items()
        if not item.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == name
    }
    assert defined <= listed, f"{name}: add these to __all__, or give them a leading underscore"


def test_the_version_is_that_of_the_project():
    pyproject = Path(__file__).resolve().parents[2] / "pyproject.toml"
    assert tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["version"] == quantrt.__version__


def test_the_python_page_names_what_is_public():
    page = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    errors = "`quantrt.QuantRtError`" in page and "(errors.md)" in page
    named = {name for name in quantrt.__all__ if re.search(rf"`{name}\b", page)}
    kinds = {name for name in quantrt.__all__ if name.endswith("Error")}
    assert errors and set(quantrt.__all__) - named - kinds == {"__version__"}


def test_ranges_show_themselves_without_a_library_that_runs_models():
    code = """
import sys
import numpy as np
import quantrt
from quantrt.calibrate.stats import TensorStats
from quantrt.model.model import Fingerprint

tensor = TensorStats.from_values(np.ones(3, np.float32))
stats = quantrt.Stats({"t": tensor}, 1, "0", Fingerprint("a", "b"))
print(len(repr(stats)) > 0 and "<table>" in stats._repr_html_())
print([name for name in ("onnxruntime", "openvino", "torch", "triton", "rich") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["True", "[]"]


def test_importing_the_package_loads_no_library():
    code = f"import sys, quantrt; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_libraries_are_told_to_send_nothing(tmp_path: Path):
    """Else OpenVINO leaves a file and sends an event when imported, and ONNX Runtime warns without HOME."""
    home = tmp_path / "home"
    home.mkdir()
    script = "import os, quantrt, onnxruntime, openvino; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    for path in (home, tmp_path / "absent"):
        environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**environment, "HOME": str(path)},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert list(home.iterdir()) == []


def test_a_metric_that_is_neither_a_name_nor_a_function_is_told_what_it_may_be():
    with pytest.raises(quantrt.UsageError, match="a metric is given by its name, or as a function") as caught:
        quantrt.Budget(metric=0.9)  # type: ignore[arg-type]
    assert caught.value.got == "float 0.9"
    assert str(caught.value.expected).endswith("module:function, or a function of outputs and labels")


@pytest.mark.parametrize("call", [quantrt.build, quantrt.quantize_model])
@pytest.mark.parametrize(
    ("options", "message", "expected"),
    [
        ({"budget": 0.01}, "cannot use this budget", "Budget"),
        ({"budget": "top1"}, "cannot use this budget", "Budget"),
        ({"config": {"precisions": ["int8"]}}, "cannot use this config", "BuildConfig"),
        ({"config": quantrt.Budget()}, "cannot use this config", "BuildConfig"),
    ],
)
def test_options_of_another_type_are_told_theirs(call, options: dict, message: str, expected: str):
    with pytest.raises(quantrt.UsageError, match=message) as caught:
        call("model.onnx", **options)
    assert caught.value.expected == f"a {expected}"
    assert caught.value.hint == f"`quantrt.config.{expected}(...)`"


def test_a_metric_that_is_a_function_has_a_name():
    assert quantrt.Budget(metric=max).metric_name == "builtins:max"
    assert quantrt.Budget(metric="top1").metric_name == "top1"
