# SPDX-License-Identifier: Apache-2.0
"""A BERT of one layer over padded tokens, for tests of engines that leave padding out."""

import numpy as np

from quantrt.model.for_gpu import for_gpu
from quantrt.model.model import Model
from tests.nets import net, weights

__all__ = ["S", "encoder", "mask_of", "token_inputs"]

S, WORDS = 12, 50

MASK = """
  flags = Cast<to=9>(mask)
  wide = Unsqueeze(flags, heads_and_queries)
  added = Where(wide, zero, lowest)"""

_TEXT = """encoder (int64[N,12] ids, int64[N,12] mask) => (float[N,12,16] tokens, float[N,8] sentence) {{
  words = Gather(table, ids)
  placed = Add(words, positions)
  x = LayerNormalization<axis=-1>(placed, g0, b0){mask}
  q0 = MatMul(x, wq) q1 = Add(q0, bq) q2 = Reshape(q1, split) q = Transpose<perm=[0,2,1,3]>(q2)
  k0 = MatMul(x, wk) k1 = Add(k0, bk) k2 = Reshape(k1, split) k = Transpose<perm=[0,2,3,1]>(k2)
  v0 = MatMul(x, wv) v1 = Add(v0, bv) v2 = Reshape(v1, split) v = Transpose<perm=[0,2,1,3]>(v2)
  s0 = MatMul(q, k) s1 = Mul(s0, half) s2 = Add(s1, added) a = Softmax<axis=-1>(s2)
  c0 = MatMul(a, v) c1 = Transpose<perm=[0,2,1,3]>(c0) c = Reshape(c1, joined)
  o0 = MatMul(c, wo) o1 = Add(o0, bo) o = Add(o1, x)
  y = LayerNormalization<axis=-1>(o, g1, b1)
  f0 = MatMul(y, w1) f1 = Add(f0, c1b) f = Relu(f1)
  h0 = MatMul(f, w2) h1 = Add(h0, c2b) h = Add(h1, y)
  tokens = LayerNormalization<axis=-1>(h, g2, b2)
  first = Gather<axis=1>(tokens, start)
  sentence = MatMul(first, wp)
}}"""
_SHAPES = {
    "table": (WORDS, 16),
    "positions": (1, S, 16),
    **dict.fromkeys(("wq", "wk", "wv", "wo"), (16, 16)),
    **dict.fromkeys(("bq", "bk", "bv", "bo", "c2b"), (16,)),
    **dict.fromkeys(("g0", "b0", "g1", "b1", "g2", "b2"), (16,)),
    "w1": (16, 32),
    "c1b": (32,),
    "w2": (32, 16),
    "wp": (16, 8),
}
_FIXED = {
    "heads_and_queries": np.array([1, 2], np.int64),
    "zero": np.float32(0.0),
    "lowest": np.float32(np.finfo(np.float32).min),
    "split": np.array([-1, S, 4, 4], np.int64),
    "joined": np.array([-1, S, 16], np.int64),
    "half": np.float32(0.5),
    "start": np.int64(0),
}


def encoder(mask: str = MASK) -> Model:
    """ids and mask -> all tokens, and a sentence made of the first.

    Args:
        mask: nodes that make `added`, what is added to the scores.
    """
    arrays = {**weights(_SHAPES), **{name: np.asarray(array) for name, array in _FIXED.items()}}
    return for_gpu(net(_TEXT.format(mask=mask), arrays))


def mask_of(lengths: list[int]) -> np.ndarray:
    """[samples, S], 1 for the first tokens of each."""
    return (np.arange(S)[None] < np.array(lengths)[:, None]).astype(np.int64)


def token_inputs(mask: np.ndarray, seed: int = 3) -> dict[str, np.ndarray]:
    """Random words under a mask."""
    ids = np.random.default_rng(seed).integers(0, WORDS, mask.shape)
    return {"ids": ids, "mask": mask}
