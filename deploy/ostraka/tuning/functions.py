"""Differentiable steps of a decoder with the fewest passes over memory: on a CPU in bfloat16, passes are what costs.

Each gives what PyTorch's own operators give, forward and backward; a test holds them to that.
"""

from typing import Any

import torch
from torch import Tensor


class Norm(torch.autograd.Function):
    """x / rms(x) * gain, for rows x [rows, width]; the mean of squares is summed in float32 at least."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=_wide(x))
        scale = torch.rsqrt(length * length / x.shape[-1] + epsilon).to(x.dtype)
        even = x * scale
        ctx.save_for_backward(even, scale, gain)
        return even * gain

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        even, scale, gain = ctx.saved_tensors
        of_gain = None
        if ctx.needs_input_grad[1]:
            of_gain = (grad * even).sum(0, dtype=_wide(grad)).to(gain.dtype)
        of_even = grad * gain
        along = (of_even * even).sum(-1, keepdim=True, dtype=_wide(grad)).div_(even.shape[-1]).to(grad.dtype)
        return of_even.addcmul_(even, along, value=-1).mul_(scale), of_gain, None


class Turn(torch.autograd.Function):
    """Rotates the halves of heads [..., dims] by angles whose cosines and sines have the same last axis."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        ctx.save_for_backward(cosines, sines)
        return _turned(x, cosines, sines, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cosines, sines = ctx.saved_tensors
        return _turned(grad, cosines, sines, -1), None, None


class LowRank(torch.autograd.Function):
    """x W^T + (x A^T) B^T for rows x, where W is frozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, a: Tensor, b: Tensor) -> Tensor:
        low = x @ a.t()
        ctx.save_for_backward(x, weight, a, b, low)
        return (x @ weight.t()).addmm_(low, b.t())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        x, weight, a, b, low = ctx.saved_tensors
        of_low = grad @ b
        return (grad @ weight).addmm_(of_low, a), None, of_low.t() @ x, grad.t() @ low


def _turned(x: Tensor, cosines: Tensor, sines: Tensor, direction: int) -> Tensor:
    half = x.shape[-1] // 2
    turned = x * cosines
    turned[..., :half].addcmul_(x[..., half:], sines[..., :half], value=-direction)
    turned[..., half:].addcmul_(x[..., :half], sines[..., half:], value=direction)
    return turned


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
