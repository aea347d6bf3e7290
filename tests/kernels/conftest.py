# SPDX-License-Identifier: Apache-2.0
"""Kernels run in Triton's interpreter here; what is compiled is compiled in processes of its own."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel's module is imported

import pytest
import triton.language as tl
from triton.runtime import interpreter


@pytest.fixture(scope="session", autouse=True)
def one_patch_for_each_launch():
    """The interpreter replaces what `triton.language` has when a kernel starts, and would look for what to
    replace again in every function that the kernel calls, which is two thirds of the time of these tests."""
    replace = interpreter._patch_lang

    def replace_what_is_not(function):
        languages = [value for value in function.__globals__.values() if value is tl or value is tl.core]
        if all(not tl.core.is_builtin(language.load) for language in languages):
            return interpreter._LangPatchScope()
        return replace(function)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", replace_what_is_not)
        yield
