# SPDX-License-Identifier: Apache-2.0
"""A pipeline that looks like one of diffusers: text encoder, denoiser with guidance, decoder."""

import dataclasses
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="quantrt.torch needs torch")
pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")

from torch import nn  # noqa: E402

WIDTH, TOKENS, SIZE = 16, 5, 16


class Output(OrderedDict):
    """Like the results of diffusers and transformers: a dict whose fields are attributes."""

    def __init__(self, **fields):
        super().__init__(fields)
        self.__dict__.update(fields)


class TextEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(64, WIDTH)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, input_ids, output_hidden_states=None):
        first = self.table(input_ids)
        last = torch.tanh(self.layer(first))
        return Output(last_hidden_state=last, hidden_states=(first, last))


class UNet(nn.Module):
    """A convolution, a sum with the embedding of the step, attention to the text, a convolution."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(in_channels=4)
        self.conv_in = nn.Conv2d(4, WIDTH, 3, padding=1)
        self.time = nn.Linear(1, WIDTH)
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.conv_out = nn.Conv2d(WIDTH, 4, 3, padding=1)

    def forward(self, sample, timestep, encoder_hidden_states, added_cond_kwargs=None, return_dict=True):
        if timestep.ndim == 0:
            timestep = timestep.expand(sample.shape[0])
        time = self.time(timestep.to(sample.dtype)[:, None] / 10) + added_cond_kwargs["text_embeds"]
        x = torch.relu(self.conv_in(sample) + time[:, :, None, None])
        x = torch.relu(self.conv(x))
        tokens = x.flatten(2).transpose(1, 2)
        weights = torch.softmax(self.q(tokens) @ self.k(encoder_hidden_states).transpose(1, 2) / 4, -1)
        x = x + (weights @ self.v(encoder_hidden_states)).transpose(1, 2).reshape(x.shape)
        x = self.conv_out(x)
        return Output(sample=x) if return_dict else (x,)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 3, 3, padding=1)

    def forward(self, sample, latent_embeds=None):
        return torch.sigmoid(self.conv(sample))


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = Decoder()


@dataclasses.dataclass
class Images:
    images: np.ndarray


class Pipeline:
    """Denoises with classifier-free guidance: one call of the denoiser has rows without the text and with."""

    def __init__(self):
        generator_state = torch.random.get_rng_state()
        torch.manual_seed(0)
        self.text_encoder, self.unet, self.vae = TextEncoder().eval(), UNet().eval(), Vae().eval()
        torch.random.set_rng_state(generator_state)

    def __call__(
        self,
        prompt=None,
        *,
        num_inference_steps,
        generator=None,
        guidance_scale=3.0,
        output_type="np",
        ids=None,
    ):
        prompts = [prompt] if isinstance(prompt, str) else prompt
        if ids is None:
            ids = torch.tensor([[ord(c) % 64 for c in text.ljust(TOKENS)[:TOKENS]] for text in prompts])
        text = self.text_encoder(ids, output_hidden_states=True).hidden_states[-1]
        is_guided = guidance_scale > 1
        if is_guided:
            text = torch.cat([torch.zeros_like(text), text])
        x = torch.randn(len(ids), 4, SIZE, SIZE, generator=generator)
        for step in range(num_inference_steps, 0, -1):
            rows = torch.cat([x, x]) if is_guided else x
            noise = self.unet(
                rows,
                torch.tensor(step),
                encoder_hidden_states=text,
                added_cond_kwargs={"text_embeds": text.mean(1)},
                return_dict=False,
            )[0]
            if is_guided:
                without, guided = noise.chunk(2)
                noise = without + guidance_scale * (guided - without)
            x = x - 0.1 * noise
        assert output_type == "np"
        return Images(self.vae.decoder(x).permute(0, 2, 3, 1).numpy())


@pytest.fixture
def pipe():
    return Pipeline()
