# SPDX-License-Identifier: Apache-2.0
"""An explanation's tables."""

import pytest

from quantrt.report.explain.show import _shared_reason

LONG = "openvino bf16 is 1.93x as fast as openvino fp32 and inside the accuracy budget"


@pytest.mark.parametrize(
    ("reasons", "shared"),
    [
        ([], ""),
        ([LONG], ""),
        ([LONG, LONG, "a conversion"], LONG),
        ([LONG, "a conversion", "another"], ""),
        (["it multiplies 8-bit codes"] * 3, ""),
    ],
)
def test_a_long_reason_of_most_layers_is_said_once(reasons: list[str], shared: str):
    assert _shared_reason(reasons) == shared
