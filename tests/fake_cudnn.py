# SPDX-License-Identifier: Apache-2.0
"""A package "cudnn" that answers as nvidia-cudnn-frontend does, for machines without a GPU.

It compiles nothing: a plan is the JSON of what was asked for, so that tests see that. Graphs of more than
`MAX_NODES` operations have no engine; one with "sin" in it takes the process down.
"""

import json
import os
from types import SimpleNamespace

MAX_NODES = 8
VERSION = 91900

data_type = SimpleNamespace(INT8="i8", HALF="f16", BFLOAT16="bf16", FLOAT="f32", INT32="i32")
heur_mode = SimpleNamespace(A="A")


class cudnnGraphNotSupportedError(RuntimeError):  # noqa: N801  as the package calls it
    pass


def backend_version():
    return VERSION


def create_device_properties(properties):
    return properties


def create_handle():
    return SimpleNamespace(stream=None)


def destroy_handle(handle):
    handle.stream = "destroyed"


def set_stream(handle, stream):
    handle.stream = stream


class _Tensor:
    def __init__(self, **facts):
        self.facts = facts

    def set_output(self, value):
        self.facts["is_output"] = value
        return self

    def set_data_type(self, kind):
        self.facts["data_type"] = kind
        return self

    def set_uid(self, uid):
        self.facts["uid"] = uid
        return self

    def set_dim(self, dim):
        self.facts["dim"] = dim
        return self

    def set_stride(self, stride):
        self.facts["stride"] = stride
        return self


class pygraph:  # noqa: N801  as the package calls it
    def __init__(self, **options):
        self.nodes = []
        self.tensors = []
        self.plans = []
        self.runs = []

    def tensor(self, **facts):
        self.tensors.append(_Tensor(**facts))
        return self.tensors[-1]

    def conv_fprop(self, **arguments):
        return self._node("conv_fprop", arguments["image"], arguments["weight"])

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: self._node(name, *args)

    def _node(self, op, *args):
        result = _Tensor()
        self.tensors.append(result)
        self.nodes.append([op, [self.tensors.index(arg) for arg in args], self.tensors.index(result)])
        return result

    def validate(self):
        if any(op == "sin" for op, _, _ in self.nodes):
            os.abort()

    def build_operation_graph(self):
        pass

    def create_execution_plans(self, modes):
        if len(self.nodes) > MAX_NODES:
            raise cudnnGraphNotSupportedError("no engine\nproposed a plan")
        self.plans = [SimpleNamespace(cpp_index=None), *(SimpleNamespace(cpp_index=n) for n in range(2))]

    def deselect_workspace_greater_than(self, limit):
        self.limit = limit

    def check_support(self):
        pass

    def build_plan_at_index(self, index):
        self.built = index

    def serialize(self, *, as_bytes):
        assert as_bytes
        rows = [tensor.facts for tensor in self.tensors]
        return json.dumps({"nodes": self.nodes, "tensors": rows, "built": self.built}).encode()

    def deserialize(self, handle, data):
        self.data = json.loads(data)

    def get_workspace_size(self):
        return 64

    def execute(self, addresses, workspace, handle):
        self.runs.append((addresses, workspace, handle))
