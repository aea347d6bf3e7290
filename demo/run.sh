#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo: every command is shown before it runs. Start it with `make demo`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build

# Prints the command as a user would type it, then runs it.
show() {
  printf '\n$ %s\n' "$*"
  "$@"
}

show quantrt doctor
show quantrt build demo/digits_resnet.onnx --int8 \
  --calib-data demo/calibration.npz --valid-data demo/validation.npz \
  --metric top1 --max-drop 0.005 -o build/digits.qrt
show quantrt bench build/digits.qrt
show quantrt compare demo/digits_resnet.onnx build/digits.qrt --data demo/validation.npz
show quantrt inspect build/digits.qrt
