# SPDX-License-Identifier: Apache-2.0
"""The architectures of diffusers themselves, at reduced width: levels agree with names, pipelines work.

Not in the development extra: `pip install '.[diffusers]'` has what this needs.
"""

import re
import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="quantrt.torch needs torch")
pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")
pytest.importorskip("diffusers", reason="diffusers is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from benchmarks.nets.sdxl_unet import SDXL_SMALL, sdxl_inputs, sdxl_unet  # noqa: E402
from quantrt.config import AssignConfig, BenchConfig, BuildConfig, DeviceConfig  # noqa: E402
from quantrt.model.load import load_model  # noqa: E402
from quantrt.quantize.patterns.edges import edge_layers  # noqa: E402
from quantrt.quantize.patterns.roles import Role, roles_of  # noqa: E402
from quantrt.quantize.placement.levels import left_in_float  # noqa: E402
from quantrt.torch.diffusers import quantize_pipeline  # noqa: E402
from quantrt.torch.diffusers.calls import CallForm, ResultForm  # noqa: E402
from quantrt.torch.diffusers.export import export_module  # noqa: E402
from tests.unit.torch.diffusers import tiny  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # warnings of diffusers are its own

FAST = BuildConfig(
    bench=BenchConfig(warmup_s=0.01, duration_s=0.05, max_duration_s=0.1, min_runs=3),
    assign=AssignConfig(mixed=False),
    device=DeviceConfig(libraries=("onnxruntime",)),
)
SAMPLE, TEXT = torch.ones(2, 4, 16, 16), torch.ones(2, 7, 32)
EMBEDS = {"text_embeds": torch.ones(2, 32), "time_ids": torch.ones(2, 6)}
FLUX = {
    "hidden_states": torch.ones(2, 16, 4),
    "encoder_hidden_states": TEXT,
    "pooled_projections": torch.ones(2, 32),
    "timestep": torch.ones(2),
    "img_ids": torch.ones(16, 3),
    "txt_ids": torch.ones(7, 3),
}
SD3 = {
    "hidden_states": SAMPLE,
    "encoder_hidden_states": TEXT,
    "pooled_projections": torch.ones(2, 64),
    "timestep": torch.ones(2),
}
CALLS = {
    "unet_sd": ((SAMPLE, torch.tensor(3), TEXT), {}),
    "unet_sdxl": ((SAMPLE, torch.tensor(3), TEXT.repeat(1, 1, 2)), {"added_cond_kwargs": EMBEDS}),
    "transformer_sd3": ((), SD3),
    "transformer_flux": ((), FLUX),
}

EXCLUDED = re.compile(
    "time_emb_proj|time_embedding|conv_in|conv_out|conv_shortcut|add_embedding|pos_embed|time_text_embed"
    "|context_embedder|norm_out|x_embedder"
)
"""Names that NVIDIA's diffusion demo leaves alone; `proj_out` is told apart below."""


class Named(torch.nn.Module):
    """One tensor per argument, for the exporter that keeps the names of modules."""

    def __init__(self, module, call):
        super().__init__()
        self.net, self._call = module, call

    def forward(self, *tensors):
        return self.net(**self._call.arguments(tensors))[0]


def named_model(name: str, path: Path):
    """The ONNX model whose nodes are called after the modules of diffusers."""
    module, (args, kwargs) = getattr(tiny, name)(), CALLS[name]
    call = CallForm.of(name, module, args, {**kwargs, "return_dict": False})
    tensors = tuple(call.tensors(args, {**kwargs, "return_dict": False}).values())
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(Named(module, call), tensors, path, dynamo=False, opset_version=17)
    return load_model(path)


@pytest.mark.parametrize("name", ["unet_sd", "unet_sdxl"])
def test_structure_tells_what_names_tell(name: str, tmp_path: Path):
    graph = named_model(name, tmp_path / "model.onnx").graph.graph
    roles = roles_of(graph)
    edges = edge_layers(graph, roles)
    for node, role in roles.items():
        if role is Role.ATTENTION:
            continue
        expected = (
            Role.FEED_FORWARD
            if "/ff/net" in node
            else Role.PROJECTION
            if re.search("to_[qkv]", node)
            else Role.LINEAR
            if role is not Role.CONVOLUTION
            else role
        )
        assert role is expected, node
        assert (node in edges) == bool(EXCLUDED.search(node) or "proj_out" in node), node


def numbered_graph(name: str, path: Path):
    """The graph as `quantize_pipeline` exports it: nodes have numbers."""
    args, kwargs = CALLS[name]
    kwargs = {**kwargs, "return_dict": False}
    module = getattr(tiny, name)()
    call = CallForm.of(name, module, args, kwargs)
    with torch.no_grad():
        result = ResultForm.of(module(*args, **kwargs))
    export_module(module, call, result, call.tensors(args, kwargs), path)
    return load_model(path).graph.graph


def test_a_transformer_of_joint_attention_has_its_roles(tmp_path: Path):
    graph = named_model("transformer_sd3", tmp_path / "model.onnx").graph.graph
    roles = roles_of(graph)
    edges = edge_layers(graph, roles)
    for node, role in roles.items():
        if re.search("to_[qkv]|add_[qkv]_proj", node):
            assert role is Role.PROJECTION, node
        if re.search(r"/ff(_context)?/net", node):
            assert role is Role.FEED_FORWARD, node
        if EXCLUDED.search(node):
            assert node in edges, node
        if node in edges:
            assert EXCLUDED.search(node) or re.search(r"net/proj_out|norm\d?(_context)?/linear", node), node


def test_rotated_and_normalized_projections_are_found(tmp_path: Path):
    """Flux: one block of two streams, and one of both in a row, with an MLP beside the attention."""
    graph = numbered_graph("transformer_flux", tmp_path / "model.onnx")
    roles = roles_of(graph)
    edges = edge_layers(graph, roles)
    rest = [role for node, role in roles.items() if node not in edges]
    assert rest.count(Role.PROJECTION) == 6 + 3
    assert rest.count(Role.FEED_FORWARD) == 4
    assert rest.count(Role.LINEAR) == 4  # two outputs of attention, the MLP's and the block's
    assert len(edges) == 3 + 4 + 4  # embedders of image and text, the last layer; of time and text; of norms


def test_the_exporter_without_names_gives_the_same_levels(tmp_path: Path):
    numbered = numbered_graph("unet_sdxl", tmp_path / "model.onnx")
    named = named_model("unet_sdxl", tmp_path / "named.onnx").graph.graph
    for level in ("1", "2", "2.5", "3", "4"):
        assert len(left_in_float(numbered, level)) == len(left_in_float(named, level))


@pytest.mark.parametrize("make", ["stable_diffusion", "stable_diffusion_xl"])
def test_a_pipeline_works_with_engines_in_it(make: str, tmp_path: Path):
    pipe = getattr(tiny, make)(tmp_path)
    pipe.set_progress_bar_config(disable=True)
    sizes = {"height": 32, "width": 32}
    modules = ("unet", "text_encoder", "vae_decoder") if make == "stable_diffusion" else None
    report = quantize_pipeline(
        pipe,
        prompts=["a cat", "a dog on a hill"],
        steps=3,
        level="3",
        modules=modules,
        call_options=sizes,
        config=FAST,
        folder=tmp_path,
        quiet=True,
    )
    assert min(alike for _, alike in report.likeness()) > 0.9
    for prompts, scale in ((["a", "b"], 1.0), (["a"], 7.5), (["a", "b"], 7.5)):
        images = pipe(prompts, num_inference_steps=2, guidance_scale=scale, output_type="np", **sizes).images
        assert np.shape(images) == (len(prompts), 32, 32, 3)


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its blocks in order, with a small pipeline in the place of the checkpoint, and quick timing."""
    page = Path(__file__).parents[4] / "docs" / "diffusion.md"
    blocks = re.findall(r"^```py\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)

    def from_pretrained(path: str, torch_dtype: torch.dtype) -> object:
        assert torch_dtype == torch.float32
        pipe = tiny.stable_diffusion(tmp_path)
        pipe.set_progress_bar_config(disable=True)
        return pipe

    monkeypatch.setattr(tiny.StableDiffusionPipeline, "from_pretrained", from_pretrained)
    for field, value in (("bench", FAST.bench), ("assign", FAST.assign), ("device", FAST.device)):
        monkeypatch.setitem(BuildConfig.__init__.__kwdefaults__, field, value)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks).replace("steps=20", "steps=2"))
    made = runpy.run_path(str(script))
    assert Path("before-and-after.png").exists()
    assert Path("levels.png").exists()
    assert {part.name for part in made["report"].parts} == {"unet", "vae_decoder", "text_encoder"}


def test_the_network_of_the_benchmarks_is_that_of_the_checkpoints():
    net, published = sdxl_unet(SDXL_SMALL), tiny.unet_sdxl()
    published.load_state_dict(net.state_dict())
    inputs = sdxl_inputs(SDXL_SMALL, 2, 16, 16)
    extra = {name: inputs.pop(name) for name in ("text_embeds", "time_ids")}
    with torch.no_grad():
        wanted = published(**inputs, added_cond_kwargs=extra, return_dict=False)[0]
        assert torch.allclose(net(**inputs, **extra), wanted, rtol=0, atol=1e-5)
