# SPDX-License-Identifier: Apache-2.0
"""Numbers as people read them."""

import math

import pytest

from quantrt.report.quantities import (
    bytes_text,
    count_text,
    db_text,
    error_text,
    memory_text,
    ms_text,
    ratio_text,
)


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (bytes_text(0), "0 B"),
        (bytes_text(999), "999 B"),
        (bytes_text(1_830_000), "1.83 MB"),
        (bytes_text(999_600), "1 MB"),
        (bytes_text(25_276_502_016), "25.3 GB"),
        (bytes_text(2_000_000_000_000), "2000 GB"),
        (count_text(7), "7"),
        (count_text(453_000), "453 k"),
        (count_text(25_600_000), "25.6 M"),
        (ms_text(0.04123), "0.0412"),
        (ms_text(2.5), "2.5"),
        (ms_text(1234.5), "1234"),
        (ratio_text(1.838), "1.84x"),
        (db_text(41.27), "41.3"),
        (db_text(math.inf), "same"),
        (db_text(-math.inf), "-inf"),
        (db_text(math.nan), "nan"),
        (error_text(0.0), "0"),
        (error_text(0.00012345), "0.000123"),
        (error_text(math.nan), "nan"),
        (memory_text({"host_bytes": 1_200_000_000, "device_bytes": None}), "1.2 GB"),
        (memory_text({"host_bytes": 5_000_000, "device_bytes": 18_400_000_000}), "5 MB, 18.4 GB on the GPU"),
    ],
)
def test_texts(got: str, want: str):
    assert got == want
