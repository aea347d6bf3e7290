# SPDX-License-Identifier: Apache-2.0
"""How a pipeline calls one of its modules: named tensors, everything else being constant.

    unet(sample, t, encoder_hidden_states=e, added_cond_kwargs={"text_embeds": x}, return_dict=False)
      tensors    sample, timestep, encoder_hidden_states, added_cond_kwargs.text_embeds
      constants  return_dict=False

The same for what it returns, so that results of an engine are put into the tuple or the class that the
module returned.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from quantrt.errors import UsageError

__all__ = ["CallForm", "ResultForm", "batch_of"]

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class CallForm:
    """The arguments that a module is called with.

    Attributes:
        module: what to call the module in messages.
        paths: of each tensor, by its name: the argument, and keys into it.
        per_sample: names of scalar tensors that become one number per sample.
        constants: arguments that hold no tensor, and what else containers of tensors hold, by path.
    """

    module: str
    signature: inspect.Signature
    paths: Mapping[str, Path]
    per_sample: frozenset[str]
    constants: Mapping[Path, Any]

    @classmethod
    def of(cls, name: str, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallForm:
        """The form of one call.

        Raises:
            UsageError: no argument is a tensor with a batch.
        """
        signature = inspect.signature(module.forward)
        paths: dict[str, Path] = {}
        scalars: set[str] = set()
        constants: dict[Path, Any] = {}
        for path, value in _leaves(_bound(signature, args, kwargs)):
            if isinstance(value, torch.Tensor):
                paths[_name(path)] = path
                if value.ndim == 0:
                    scalars.add(_name(path))
            else:
                constants[path] = value
        if not paths.keys() - scalars:
            raise UsageError(f"cannot make an engine of '{name}': it is called without tensors")
        return cls(name, signature, paths, frozenset(scalars), constants)

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """The tensors of a call, by name; scalars as one number per sample.

        Raises:
            UsageError: the call has another form than this.
        """
        found: dict[str, torch.Tensor] = {}
        rest: dict[Path, Any] = {}
        for path, value in _leaves(_bound(self.signature, args, kwargs)):
            if isinstance(value, torch.Tensor):
                found[_name(path)] = value
            else:
                rest[path] = value
        self._check(found, rest)
        batch = batch_of(found)
        return {
            name: found[name].reshape(1).expand(batch) if name in self.per_sample else found[name]
            for name in self.paths
        }

    def arguments(self, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
        """The keyword arguments that hold these tensors, in the order of `paths`, and the constants."""
        leaves = {**self.constants, **dict(zip(self.paths.values(), tensors, strict=True))}
        arguments: dict[str, Any] = _assembled(leaves)
        return arguments

    def _check(self, found: Mapping[str, torch.Tensor], rest: Mapping[Path, Any]) -> None:
        other = sorted(found.keys() ^ self.paths.keys())
        changed = [
            _name(path)
            for path in rest.keys() & self.constants.keys()
            if not _same(rest[path], self.constants[path])
        ]
        changed += [_name(path) for path in rest.keys() ^ self.constants.keys() if _name(path) not in other]
        wrong = [
            name
            for name in found
            if name in self.paths and (found[name].ndim == 0) != (name in self.per_sample)
        ]
        if other or changed or wrong:
            named = ", ".join(f"'{name}'" for name in sorted({*other, *changed, *wrong}))
            raise UsageError(
                f"the engine of '{self.module}' was made for other calls: {named} differs",
                got=_told(found, rest),
                expected=_told(dict.fromkeys(self.paths), self.constants),
                hint="quantize the pipeline with the options that it is called with",
            )


@dataclass(frozen=True)
class ResultForm:
    """What a module returns.

    Attributes:
        paths: of each tensor, by name.
        types: of each container, by path: tuple, list, dict or a class with fields of these names.
    """

    paths: Mapping[str, Path]
    types: Mapping[Path, type]

    @classmethod
    def of(cls, result: Any) -> ResultForm:
        """The form of one result."""
        if isinstance(result, torch.Tensor):
            return cls({"output": ()}, {})
        paths = {_name(path): path for path, value in _leaves(result) if isinstance(value, torch.Tensor)}
        return cls(paths, dict(_containers(result, ())))

    @staticmethod
    def tensors(result: Any) -> tuple[torch.Tensor, ...]:
        """The tensors of a result, in the order of `paths`."""
        if isinstance(result, torch.Tensor):
            return (result,)
        return tuple(value for _, value in _leaves(result) if isinstance(value, torch.Tensor))

    def result(self, tensors: Mapping[str, torch.Tensor]) -> Any:
        """The same containers, with these tensors in them."""
        leaves = {path: tensors[name] for name, path in self.paths.items()}
        return leaves[()] if () in leaves else _assembled(leaves, self.types)


def batch_of(tensors: Mapping[str, torch.Tensor]) -> int:
    """The number of samples: the first size of the first tensor that has one."""
    return next(int(tensor.shape[0]) for tensor in tensors.values() if tensor.ndim)


def _bound(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    arguments = signature.bind(*args, **kwargs).arguments
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and name in arguments:
            arguments.update(arguments.pop(name))
    return {name: value for name, value in arguments.items() if value is not None}


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """What is in dicts, tuples and lists, with its path, but for None."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    elif value is not None:
        yield path, value


def _containers(value: Any, path: Path) -> Iterator[tuple[Path, type]]:
    if isinstance(value, (Mapping, tuple, list)):
        yield path, type(value)
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            yield from _containers(item, (*path, key))


def _assembled(leaves: Mapping[Path, Any], types: Mapping[Path, type] | None = None, at: Path = ()) -> Any:
    """Containers of the leaves below one path."""
    if at in leaves:
        return leaves[at]
    keys = dict.fromkeys(path[len(at)] for path in leaves if path[: len(at)] == at and len(path) > len(at))
    items = {key: _assembled(leaves, types, (*at, key)) for key in keys}
    kind = (types or {}).get(at)
    if kind in (tuple, list) or (kind is None and keys and all(isinstance(key, int) for key in keys)):
        return (kind or tuple)(items.values())
    return items if kind in (None, dict) else kind(**{str(key): item for key, item in items.items()})


def _name(path: Path) -> str:
    return ".".join(map(str, path))


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and bool(a == b))


def _told(tensors: Mapping[str, Any], constants: Mapping[Path, Any]) -> str:
    return ", ".join([*tensors, *(f"{_name(path)}={value!r}" for path, value in constants.items())])
