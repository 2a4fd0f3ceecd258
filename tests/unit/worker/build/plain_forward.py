"""A forward pass in float64, written head by head and pair by pair from the papers, over Hugging Face's names.

It takes nothing from the builder. transformers_logits.json holds it, in turn, to what
`transformers` computes.
"""

import numpy as np

from tests.unit.worker.build.forms import Form, Tensors


def logits(form: Form, tensors: Tensors, ids: list[int]) -> np.ndarray:
    """After the last token, for every piece."""
    w = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    x = w["model.embed_tokens.weight"][ids]
    for i in range(form.layers):
        at = f"model.layers.{i}."
        normed = norm(x, w[f"{at}input_layernorm.weight"], form.epsilon)
        x = x + attention(form, w, f"{at}self_attn.", normed)
        normed = norm(x, w[f"{at}post_attention_layernorm.weight"], form.epsilon)
        gate, up = (normed @ w[f"{at}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{at}mlp.down_proj.weight"].T
    last = norm(x[-1], w["model.norm.weight"], form.epsilon)
    return w.get("lm_head.weight", w["model.embed_tokens.weight"]) @ last


def norm(x: np.ndarray, gain: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon) * gain


def attention(form: Form, w: Tensors, at: str, x: np.ndarray) -> np.ndarray:
    def projected(part: str) -> np.ndarray:
        return x @ w[f"{at}{part}_proj.weight"].T + w.get(f"{at}{part}_proj.bias", 0)

    query, key, value = projected("q"), projected("k"), projected("v")
    dims, outputs = form.head_dims, []
    for head in range(form.heads):
        shared = head * form.kv_heads // form.heads
        mine, theirs = slice(head * dims, (head + 1) * dims), slice(shared * dims, (shared + 1) * dims)
        q, k = query[:, mine], key[:, theirs]
        if f"{at}q_norm.weight" in w:
            q, k = norm(q, w[f"{at}q_norm.weight"], form.epsilon), norm(k, w[f"{at}k_norm.weight"], form.epsilon)
        scores = rotated(form, q) @ rotated(form, k).T / dims**0.5
        scores[np.triu_indices(len(x), 1)] = -np.inf
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        outputs.append(odds / odds.sum(axis=1, keepdims=True) @ value[:, theirs])
    return np.hstack(outputs) @ w[f"{at}o_proj.weight"].T


def rotated(form: Form, x: np.ndarray) -> np.ndarray:
    """Dimension i and i + dims/2 are a pair, turned by position / base ** (2i / dims)."""
    half = form.head_dims // 2
    turned = np.empty_like(x)
    for pair in range(half):
        angles = np.arange(len(x)) / form.rope_base ** (2 * pair / form.head_dims)
        first, second = x[:, pair], x[:, pair + half]
        turned[:, pair] = first * np.cos(angles) - second * np.sin(angles)
        turned[:, pair + half] = second * np.cos(angles) + first * np.sin(angles)
    return turned
