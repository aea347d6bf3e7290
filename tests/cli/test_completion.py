# SPDX-License-Identifier: Apache-2.0
"""The completion scripts work in the shells they are for."""

import shutil
import subprocess

import pytest

from quantrt.cli.main import main

DRIVER = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}
spec=$(complete -p quantrt)
function_name=$(sed -E 's/.*-F ([^ ]+).*/\1/' <<<"$spec")
"$function_name" quantrt "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def bash_script(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "quantrt.bash"
    path.write_text(capsys.readouterr().out)
    return path


def complete(script, *words: str, cwd=None) -> list[str]:
    done = subprocess.run(
        ["bash", "--norc", "-c", DRIVER, "bash", str(script), *words],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=cwd,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        pytest.param(["quantrt", "b"], {"build", "bench"}, id="verbs"),
        pytest.param(["quantrt", "build", "--calib-d"], {"--calib-data"}, id="option"),
        pytest.param(["quantrt", "build", "m.onnx", "--method", "e"], {"entropy"}, id="choice"),
        pytest.param(["quantrt", "quantize", "m.onnx", "--target", "o"], {"ort", "openvino"}, id="target"),
        pytest.param(["quantrt", "completion", ""], {"bash", "zsh", "fish"}, id="shell"),
        pytest.param(["quantrt", "build", "m.onnx", "--recipe", "f"], {"fast", "fp8"}, id="recipe"),
        pytest.param(["quantrt", "quantize", "m.onnx", "--metric", "t"], {"top1"}, id="metric"),
    ],
)
def test_bash_completes(bash_script, words: list[str], wanted: set[str]):
    assert set(complete(bash_script, *words)) == wanted


@pytest.mark.parametrize("option", ["--calib-data", "--recipe", "--labels", "--timing-cache"])
def test_bash_completes_file_names(bash_script, option: str, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "calibration.file").touch()
    found = complete(bash_script, "quantrt", "build", "m.onnx", option, "data/cal", cwd=tmp_path)
    assert found == ["data/calibration.file"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed here")
def test_zsh_accepts_the_script(tmp_path, capsys):
    assert main(["completion", "zsh"]) == 0
    path = tmp_path / "_quantrt"
    path.write_text(capsys.readouterr().out)
    subprocess.run(["zsh", "-n", str(path)], check=True)


def test_zsh_script_names_the_command_and_its_options(capsys):
    main(["completion", "zsh"])
    script = capsys.readouterr().out
    assert script.startswith("#compdef quantrt")
    assert "--max-drop" in script
    assert ":NAME|FILE:_quantrt_recipe" in script


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed here")
def test_fish_completes(tmp_path, capsys):
    assert main(["completion", "fish"]) == 0
    path = tmp_path / "quantrt.fish"
    path.write_text(capsys.readouterr().out)
    script = f'source {path}; complete -C "quantrt build --calib-d"; complete -C "quantrt bu"; '
    script += (
        'complete -C "quantrt build m.onnx --recipe fa"; complete -C "quantrt build m.onnx --recipe data/cal"'
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "calibration.toml").touch()
    done = subprocess.run(
        ["fish", "-N", "-c", script], capture_output=True, text=True, check=True, timeout=30, cwd=tmp_path
    )
    found = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert found == ["--calib-data", "build", "fast", "data/calibration.toml"]
