# SPDX-License-Identifier: Apache-2.0
"""What benchmarks/cuda_attention8.py measured, as text."""

__all__ = ["attention_page"]

import math
from typing import Any


def attention_page(results: dict[str, Any]) -> str:
    """Every form, shape by shape: times, rates, floors and errors."""
    lines = []
    for shape, rows in results["rows"].items():
        best = min((row["hot_us"] for name, row in rows.items() if name.startswith("sdpa")), default=math.nan)
        lines.append(f"\n{shape}: the best SDPA takes {best:.1f} us")
        for name, row in sorted(rows.items(), key=lambda item: item[1].get("hot_us", math.inf)):
            lines.append(_line(name, row, best))
    return "\n".join(lines)


def _line(name: str, row: dict[str, Any], best: float) -> str:
    if "error" in row:
        return f"  {name:58s} {row['error']}"
    floors = f"mma {row['tensor_us']:.0f} exp {row['exponential_us']:.0f} bytes {row['bytes_us']:.0f}"
    encode = f" codes {row['encode_us']:.1f}" if "encode_us" in row else ""
    return (
        f"  {name:58s} hot {row['hot_us']:8.1f} us {best / row['hot_us']:5.2f}x {row['tflops']:6.0f} TFLOP/s "
        f"cold {row['cold_us']:8.1f}{encode} floors: {floors}; relative L2 {row['relative_l2']:.1e} "
        f"cosine {row['cosine']:.7f}"
    )
