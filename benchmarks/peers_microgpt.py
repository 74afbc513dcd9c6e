"""examples/microgpt.py in PyTorch and JAX: the same weights, names and Adam, written with the products of matrices.

`Eager`: torch.nn.functional and torch.optim.Adam(fused=True). `Jitted`: a jitted call for each step of JAX. `Scanned`:
the steps of a chunk are one jitted call, a `lax.scan` over tokens that are on the device already, parameters donated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

BETAS, EPS = (0.85, 0.99), 1e-8  # of examples/microgpt.py
CHUNK_OF_BUILD = 500  # rows of a scan: it is compiled for their number


def weights(gpt: Any, dtype: str) -> dict[str, np.ndarray]:
    return {
        name: np.array([[value.data for value in row] for row in rows], dtype)
        for name, rows in gpt.new_parameters().items()
    }


class Eager:
    few = 0

    def __init__(self, gpt: Any, data: Sequence[np.ndarray], dtype: str) -> None:
        import torch

        torch.set_num_threads(1)
        self.torch, self.gpt = torch, gpt
        self.w = {name: torch.tensor(array, requires_grad=True) for name, array in weights(gpt, dtype).items()}
        tokens, following, shares = data
        self.tokens, self.following = torch.tensor(tokens), torch.tensor(following)
        self.shares = torch.tensor(shares.astype(dtype))
        self.rule = torch.optim.Adam(self.w.values(), lr=gpt.RATE, betas=BETAS, eps=EPS, fused=True)

    def norm(self, x: Any) -> Any:
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()

    def loss(self, tokens: Any, following: Any, shares: Any) -> Any:
        f, w, gpt = self.torch.nn.functional, self.w, self.gpt
        x = w["token"][tokens] + w["place"]
        for b in range(gpt.BLOCKS):
            h = self.norm(x)
            q, k, v = (
                f.linear(h, w[f"{b}.{name}"]).view(gpt.TOKENS, gpt.HEADS, gpt.SIZE).transpose(0, 1)
                for name in ("query", "key", "value")
            )
            seen = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).reshape(x.shape)
            x = x + f.linear(seen, w[f"{b}.mix"])
            x = x + f.linear(f.relu(f.linear(self.norm(x), w[f"{b}.up"])), w[f"{b}.down"])
        return shares @ f.cross_entropy(f.linear(self.norm(x), w["head"]), following, reduction="none")

    def train(self, start: int, stop: int) -> float:
        total = 0.0
        for row in zip(self.tokens[start:stop], self.following[start:stop], self.shares[start:stop], strict=True):
            self.rule.zero_grad()
            loss = self.loss(*row)
            loss.backward()
            self.rule.step()
            total += loss.item()
        return total / (stop - start)


class Jitted:
    few, scans = 0, False

    def __init__(self, gpt: Any, data: Sequence[np.ndarray], dtype: str) -> None:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", dtype == "float64")
        self.gpt, self.jax, self.jnp = gpt, jax, jnp
        w = {name: jnp.asarray(array) for name, array in weights(gpt, dtype).items()}
        zeros = jax.tree.map(jnp.zeros_like, w)
        self.state = w, zeros, jax.tree.map(jnp.copy, zeros), jnp.zeros((), dtype)
        tokens, following, shares = data
        self.data = jnp.asarray(tokens), jnp.asarray(following), jnp.asarray(shares.astype(dtype))
        self.jitted = jax.jit(self.many if self.scans else self.step, donate_argnums=0)
        copy = jax.tree.map(jnp.copy, self.state)
        jax.block_until_ready(self.jitted(copy, self.rows(0, CHUNK_OF_BUILD if self.scans else 1)))

    def rows(self, start: int, stop: int) -> Any:
        return tuple(array[start:stop] if self.scans else array[start] for array in self.data)

    def norm(self, x: Any) -> Any:
        return x * (self.jnp.mean(x * x, -1, keepdims=True) + 1e-5) ** -0.5

    def loss(self, w: Any, tokens: Any, following: Any, shares: Any) -> Any:
        gpt, jnp, jax = self.gpt, self.jnp, self.jax
        mask = jnp.tril(jnp.ones((gpt.TOKENS, gpt.TOKENS), bool))
        x = w["token"][tokens] + w["place"]
        for b in range(gpt.BLOCKS):
            h = self.norm(x)
            q, k, v = (
                (h @ w[f"{b}.{name}"].T).reshape(gpt.TOKENS, gpt.HEADS, gpt.SIZE) for name in ("query", "key", "value")
            )
            scores = jnp.einsum("thd,shd->hts", q, k) / math.sqrt(gpt.SIZE)
            seen = jnp.einsum("hts,shd->thd", jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)), v).reshape(x.shape)
            x = x + seen @ w[f"{b}.mix"].T
            x = x + jax.nn.relu(self.norm(x) @ w[f"{b}.up"].T) @ w[f"{b}.down"].T
        logp = jax.nn.log_softmax(self.norm(x) @ w["head"].T)
        return -shares @ jnp.take_along_axis(logp, following[:, None], 1)[:, 0]

    def step(self, state: Any, row: Any) -> Any:
        w, mean, square, count = state
        loss, g = self.jax.value_and_grad(self.loss)(w, *row)
        tree, (first, second) = self.jax.tree.map, BETAS
        count = count + 1
        mean = tree(lambda m, x: first * m + (1 - first) * x, mean, g)
        square = tree(lambda s, x: second * s + (1 - second) * x * x, square, g)
        root = self.jnp.sqrt(1 - second**count)
        size = self.gpt.RATE * root / (1 - first**count)
        w = tree(lambda p, m, s: p - size * m / (self.jnp.sqrt(s) + EPS * root), w, mean, square)
        return (w, mean, square, count), loss

    def many(self, state: Any, rows: Any) -> Any:
        state, losses = self.jax.lax.scan(self.step, state, rows)
        return state, losses.mean()

    def train(self, start: int, stop: int) -> float:
        if self.scans:
            self.state, loss = self.jitted(self.state, self.rows(start, stop))
            return float(loss)
        losses = []
        for i in range(start, stop):
            self.state, loss = self.jitted(self.state, self.rows(i, i + 1))
            losses.append(loss)
        return float(np.mean([float(loss) for loss in losses]))


class Scanned(Jitted):
    scans = True
