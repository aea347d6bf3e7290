# SPDX-License-Identifier: Apache-2.0
"""A process that makes plans: one JSON request per line in, one JSON answer per line out.

    {"graph": ..., "properties": 0, "gpu": name, "workspace_limit_bytes": null}
        ->  {"data": base64, "workspace_bytes": 0, "cudnn": 91900, "gpu": name}  or  {"error": "one line"}

Processes, because cuDNN's Python package makes no two plans of one process at once, and a library can abort.
"""

from __future__ import annotations

import base64
from typing import Any

from quantrt.plan.cudnn_plan import graph_from_json
from quantrt.runtime.cuda.device.cudnn_library import make_plan
from quantrt.worker_process import answer_requests

__all__ = ["answer"]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The plan, or why there is none."""
    plan = make_plan(
        graph_from_json(request["graph"]),
        request["properties"],
        request["gpu"],
        workspace_limit_bytes=request["workspace_limit_bytes"],
    )
    return {
        "data": base64.b64encode(plan.data).decode("ascii"),
        "workspace_bytes": plan.workspace_bytes,
        "cudnn": plan.cudnn,
        "gpu": plan.gpu,
    }


if __name__ == "__main__":
    answer_requests(answer)
