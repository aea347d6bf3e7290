# SPDX-License-Identifier: Apache-2.0
"""A process that makes plans: one JSON request per line in, one JSON answer per line out.

    {"graph": ..., "properties": 0, "gpu": name, "workspace_limit_bytes": null}
        ->  {"data": base64, "workspace_bytes": 0, "cudnn": 91900, "gpu": name}  or  {"error": "one line"}

Processes, because cuDNN's Python package makes no two plans of one process at once, and a library can abort.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from quantrt.errors import QuantRtError
from quantrt.plan.cudnn_plan import graph_from_json
from quantrt.runtime.cuda.cudnn_library import make_plan

__all__ = ["answer", "main", "serve"]


def main() -> None:
    """Answer requests until standard input ends; what libraries print is dropped."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers, Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        serve(sys.stdin, answers)


def serve(requests: Iterable[str], answers: IO[str]) -> None:
    """Answer every line of `requests`."""
    for line in requests:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The plan, or why there is none."""
    try:
        plan = make_plan(
            graph_from_json(request["graph"]),
            request["properties"],
            request["gpu"],
            workspace_limit_bytes=request["workspace_limit_bytes"],
        )
    except QuantRtError as error:
        return {"error": f"{error.message}: {error.got}" if error.got else error.message}
    return {
        "data": base64.b64encode(plan.data).decode("ascii"),
        "workspace_bytes": plan.workspace_bytes,
        "cudnn": plan.cudnn,
        "gpu": plan.gpu,
    }


if __name__ == "__main__":
    main()
