# SPDX-License-Identifier: Apache-2.0
"""Class labels of pictures: from a table, or from the files' own names."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from quantrt.errors import DataError

__all__ = ["FILENAME_LABELS", "FOLDER_LABELS", "read_labels"]

FILENAME_LABELS = "filename"
FOLDER_LABELS = "folder"
LABEL_COLUMNS = ("label", "labels", "class_index", "class", "target", "y")
MOST_SHOWN = 80
"""Characters of a line in a message."""
FILE_COLUMNS = ("file", "filename", "path", "image", "name")


def read_labels(labels: str | Path, files: Sequence[str]) -> list[int]:
    """The label of each file.

    Args:
        labels: "filename": the number each name starts with. "folder": the place of its outermost folder
            among all of them in order, as torchvision's ImageFolder counts. Otherwise a CSV of file and
            label, with or without a header that names them; the file is a path as in `files` or its last
            part.

    Raises:
        DataError: a file has no label, or one that is no whole number.
    """
    if str(labels) == FILENAME_LABELS:
        return [_leading_number(name) for name in files]
    if str(labels) == FOLDER_LABELS:
        return _folder_numbers(files)
    table = _read_csv(Path(labels))
    found = [table.get(name, table.get(PurePosixPath(name).name)) for name in files]
    for name, label in zip(files, found, strict=True):
        if label is None:
            raise DataError(
                f"'{labels}' has no label for '{name}'", got=f"{len(table)} labels for other files"
            )
    return [label for label in found if label is not None]


def _leading_number(name: str) -> int:
    match = re.match(r"\d+", PurePosixPath(name).name)
    if match is None:
        raise DataError(
            f"cannot take a label from the name '{name}'", expected="a name that starts with a number"
        )
    return int(match.group())


def _folder_numbers(files: Sequence[str]) -> list[int]:
    folders = [PurePosixPath(name).parts[0] if "/" in name else None for name in files]
    alone = next((name for name, folder in zip(files, folders, strict=True) if folder is None), None)
    if alone is not None:
        raise DataError(
            f"cannot take a label from the folder of '{alone}': it is in none",
            expected="a folder for each class, such as cat/1.jpg",
        )
    numbers = {name: number for number, name in enumerate(sorted({name for name in folders if name}))}
    return [numbers[folder] for folder in folders if folder is not None]


def _read_csv(path: Path) -> dict[str, int]:
    if path.suffix == ".json":
        raise DataError(
            f"cannot read the labels '{path}': they are no table of file and number",
            got="JSON, as of boxes",
            hint="no --labels, and --metric module:function, which reads the file itself",
        )
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read the labels '{path}'", got=str(error)) from error
    if not rows:
        raise DataError(f"the labels '{path}' are empty", expected="lines of file,label")
    header = [cell.strip().lower() for cell in rows[0]]
    file_column = next((header.index(name) for name in FILE_COLUMNS if name in header), None)
    label_column = next((header.index(name) for name in LABEL_COLUMNS if name in header), None)
    has_header = file_column is not None and label_column is not None
    first, second = (file_column or 0, label_column or 0) if has_header else (0, 1)
    table = {}
    for number, row in enumerate(rows[1:] if has_header else rows, start=1 + has_header):
        try:
            table[row[first].strip()] = int(row[second])
        except (IndexError, ValueError):
            raise DataError(
                f"cannot read line {number} of the labels '{path}'",
                got=",".join(row)[:MOST_SHOWN],
                expected="file,label",
            ) from None
    return table
