# SPDX-License-Identifier: Apache-2.0
"""`--recipe`: options that were not given on the command line come from a recipe."""

from __future__ import annotations

import argparse

from quantrt.recipe import Recipe, load_recipe, recipe_names

__all__ = ["add_recipe", "fill_from_recipe"]


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Add --recipe."""
    parser.add_argument(
        "--recipe",
        metavar="NAME|FILE",
        help=f"options that are not given here: one of {', '.join(recipe_names())}, or a .toml file",
    )


def fill_from_recipe(args: argparse.Namespace) -> Recipe | None:
    """Give every option that is not given the value of the recipe; None without one.

    Raises:
        UsageError, DataError: the recipe cannot be used.
    """
    if args.recipe is None:
        return None
    recipe = load_recipe(args.recipe)
    options = {**recipe.calibration, **recipe.quantize, "device": recipe.device}
    if recipe.libraries:
        options["libraries"] = recipe.libraries
    for name, value in options.items():
        if hasattr(args, name) and getattr(args, name) is None:
            setattr(args, name, value)
    return recipe
