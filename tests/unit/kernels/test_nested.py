# SPDX-License-Identifier: Apache-2.0
from quantrt.kernels.nested import are_filled, nested, paths_of

PARAMETERS = ("x_ptr", "pointers", "slots", "M")
NAMES = ("x_ptr", "y0_ptr", "y1_ptr", *(f"arg{number}" for number in range(12)), "M")


def test_numbered_arguments_are_elements_of_tuples():
    paths = paths_of(NAMES, PARAMETERS)
    assert paths["x_ptr"] == (0,) and paths["M"] == (3,)
    assert paths["y1_ptr"] == (1, 1)
    assert paths["arg10"] == (2, 10), "by number, not by letter"
    assert are_filled(paths, PARAMETERS)


def test_names_that_no_parameter_takes_have_no_place():
    assert set(paths_of(("x_ptr", "K", "y_ptr"), PARAMETERS)) == {"x_ptr"}
    assert paths_of(("arg0",), ("arg0",)) == {"arg0": (0,)}, "a kernel may name its own"


def test_every_parameter_is_filled_without_gaps():
    assert not are_filled(paths_of(NAMES[1:], PARAMETERS), PARAMETERS), "x_ptr"
    assert not are_filled(paths_of([x for x in NAMES if x != "arg4"], PARAMETERS), PARAMETERS)
    assert not are_filled(paths_of(("x_ptr", "y0_ptr", "M"), PARAMETERS), PARAMETERS), "slots"


def test_what_belongs_to_arguments_goes_where_they_go():
    values = {"arg1": "fp32", "M": "i32", "y0_ptr": "*i8", "arg0": "*fp32", "x_ptr": "*i8"}
    wanted = {"x_ptr": "*i8", "pointers": ("*i8",), "slots": ("*fp32", "fp32"), "M": "i32"}
    assert nested(values, PARAMETERS) == wanted
