# SPDX-License-Identifier: Apache-2.0
"""Models of transformers as modules of arrays in, tensors out, and the sizes that they have in the zoo."""

__all__ = ["DECODER", "ENCODER", "WIDTH", "called", "stepped"]

from typing import TYPE_CHECKING, Any

from benchmarks.models import declare_torchvision_ops
from benchmarks.zoo_case import VOCABULARY

if TYPE_CHECKING:
    import torch

WIDTH, HEADS, LAYERS = 192, 3, 3

ENCODER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH,
}
"""As BERT's configuration calls them."""

DECODER: dict[str, Any] = {
    **ENCODER,
    "num_key_value_heads": 1,
    "head_dim": WIDTH // HEADS,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}
"""As LLaMA's configuration calls them."""


def called(
    model: str,
    config: "str | dict[str, Any]",
    names: tuple[str, ...],
    picks: tuple[str, ...],
    part: str = "",
    **sizes: Any,
) -> "torch.nn.Module":
    """A model of transformers that is called with `names` and gives what `picks` are called in its output.

    Args:
        config: the name of its configuration; what that holds follows as `sizes`.
        part: of the model, by a path with dots; "" for the whole of it.
    """
    import torch

    declare_torchvision_ops()
    import transformers

    transformers.logging.set_verbosity_error()
    made = getattr(transformers, model)(getattr(transformers, str(config))(**sizes))
    for step in part.split(".") if part else ():
        made = getattr(made, step)

    class Called(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = made

        def forward(self, *arrays: Any) -> Any:
            given = self.model(**dict(zip(names, arrays, strict=True)), **EXTRA.get(model, {}))
            found = tuple(getattr(given, pick) for pick in picks)
            return found[0] if len(found) == 1 else found

    return Called()


EXTRA: dict[str, dict[str, Any]] = {"T5Model": {"use_cache": False}, "BartModel": {"use_cache": False}}
"""Arguments that are no tensors."""


def stepped(model: str, config: str, layers: int, **sizes: Any) -> "torch.nn.Module":
    """A decoder that takes the keys and values of earlier tokens and gives those of all, two a layer."""
    import torch

    declare_torchvision_ops()
    import transformers
    from transformers.cache_utils import DynamicCache

    transformers.logging.set_verbosity_error()
    made = getattr(transformers, model)(getattr(transformers, config)(**sizes))

    class Stepped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = made

        def forward(self, input_ids: Any, attention_mask: Any, *past: Any) -> Any:
            cache = DynamicCache()
            for layer in range(layers):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            given = self.model(
                input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True
            )
            kept = [x for layer in given.past_key_values.layers for x in (layer.keys, layer.values)]
            return (given.logits, *kept)

    return Stepped()
