#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes .venv and installs this package into it, editable, with the given extra ("" or "dev").
# Usage: scripts/make_venv.sh EXTRA STAMP      STAMP is touched once everything is installed.
set -euo pipefail

extra=${1-}
stamp=${2:?usage: scripts/make_venv.sh EXTRA STAMP}
venv=.venv

# Prints the first Python on PATH that runs and is 3.11 or newer; PYTHON=... overrides the search.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3.14 python3 python}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
  done
  echo "error: cannot make $venv: no Python 3.11 or newer was found" >&2
  echo "  looked for ${PYTHON:-python3.11, 3.12, 3.13, 3.14, python3 and python} on PATH" >&2
  echo "  try installing python3.11, or: make PYTHON=/path/to/python3.11 <target>" >&2
  return 1
}

make_venv() {
  local python
  python=$(find_python)
  echo "making $venv with $("$python" --version) ($python)"
  # Some distributions ship venv without ensurepip; there the outer pip installs the inner one.
  if ! "$python" -m venv "$venv" >"$venv.log" 2>&1; then
    if ! { "$python" -m venv --clear --without-pip "$venv" && "$python" -m pip --python "$venv/bin/python" install --quiet pip; } >>"$venv.log" 2>&1; then
      cat "$venv.log" >&2
      rm -rf "$venv" "$venv.log"
      echo "error: cannot make $venv: $python has neither a working venv module nor pip" >&2
      echo "  try installing the python3-venv package of your system" >&2
      return 1
    fi
  fi
  rm -f "$venv.log"
}

# A venv that was moved or whose Python is gone cannot run: it is made anew.
if ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; then
  rm -rf "$venv"
  make_venv
fi

echo "installing quantrt${extra:+[$extra]} into $venv"
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-compile --editable ".${extra:+[$extra]}"
# pip would compile one file after the other, and nothing of quantrt. What packages hold for other Pythons fails.
"$venv/bin/python" -W ignore -m compileall -qq -j 0 "$venv"/lib/python*/site-packages quantrt || true
touch "$stamp"
