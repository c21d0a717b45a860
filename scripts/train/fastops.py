"""Quicker convolution and group-norm gradients for bf16 training on a CPU.

PyTorch's bf16 forward convolution runs on the matrix units of recent CPUs, but
its backward does not always. Here the input gradient is computed as a forward
convolution with the flipped kernel, and the weight gradient as one matrix
product over patches, both of which do. Group norm's backward is written as a
few whole-tensor operations for the same reason. The result is the same mathematics;
the modules' parameters and names do not change.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def _patches(x: torch.Tensor, k: int, stride: int, out_h: int, out_w: int) -> torch.Tensor:
    """(B, H, W, C) contiguous, already padded -> (B*out_h*out_w, k*k*C)."""
    b, h, w, c = x.shape
    view = x.as_strided((b, out_h, out_w, k, k, c), (h * w * c, stride * w * c, stride * c, w * c, c, 1))
    return view.reshape(b * out_h * out_w, k * k * c)


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, stride, padding):
        ctx.save_for_backward(x, weight)
        ctx.geometry = (stride, padding, bias is not None)
        return F.conv2d(x, weight, bias, stride, padding)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        stride, padding, has_bias = ctx.geometry
        n_out, n_in, k, _ = weight.shape
        grad = grad.contiguous(memory_format=torch.channels_last)
        b, _, gh, gw = grad.shape
        flat = grad.permute(0, 2, 3, 1).reshape(-1, n_out)
        gx = gw_ = gb = None
        if ctx.needs_input_grad[1]:
            xl = x.permute(0, 2, 3, 1)
            if padding:
                xl = F.pad(xl, (0, 0, padding, padding, padding, padding))
            cols = _patches(xl.contiguous(), k, stride, gh, gw)
            gw_ = (flat.t() @ cols).view(n_out, k, k, n_in).permute(0, 3, 1, 2)
        if has_bias and ctx.needs_input_grad[2]:
            gb = flat.float().sum(0).to(grad.dtype)
        if ctx.needs_input_grad[0]:
            g = grad
            if stride > 1:
                g = grad.new_zeros(b, n_out, gh * stride, gw * stride).contiguous(memory_format=torch.channels_last)
                g[:, :, ::stride, ::stride] = grad
            flipped = weight.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
            gx = F.conv2d(g, flipped, None, 1, k - 1 - padding)
            gx = gx[:, :, :x.shape[2], :x.shape[3]]
            missing = (x.shape[3] - gx.shape[3], x.shape[2] - gx.shape[2])
            if missing != (0, 0):
                gx = F.pad(gx, (0, missing[0], 0, missing[1]))
        return gx, gw_, gb, None, None


def _forward(self: nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
    if not torch.is_grad_enabled() or not torch.is_autocast_enabled("cpu"):
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding)
    dtype = torch.get_autocast_dtype("cpu")
    x = x.to(dtype).contiguous(memory_format=torch.channels_last)
    weight = self.weight.to(dtype)
    bias = None if self.bias is None else self.bias.to(dtype)
    with torch.autocast("cpu", enabled=False):
        return _Conv.apply(x, weight, bias, self.stride[0], self.padding[0])


class _GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, groups, eps):
        b, c, h, w = x.shape
        y, mean, rstd = torch.native_group_norm(x, weight, bias, b, c, h * w, groups, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.groups = groups
        return y

    @staticmethod
    def backward(ctx, grad):
        x, weight, mean, rstd = ctx.saved_tensors
        b, c, h, w = x.shape
        per = c // ctx.groups
        mean, rstd, scale = mean.float(), rstd.float(), weight.float()
        dy = grad.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1).reshape(b, h * w, c)
        xf = x.permute(0, 2, 3, 1).reshape(b, h * w, c)
        s1 = dy.sum(1, dtype=torch.float32)
        s2 = (dy * xf).sum(1, dtype=torch.float32)
        mean_c, rstd_c = mean.repeat_interleave(per, 1), rstd.repeat_interleave(per, 1)
        g_scale = ((s2 - mean_c * s1) * rstd_c).sum(0)
        ds = (s2 * scale).view(b, ctx.groups, per).sum(-1)
        db = (s1 * scale).view(b, ctx.groups, per).sum(-1)
        n = per * h * w
        k2 = (db * mean - ds) * rstd**3 / n
        k3 = -k2 * mean - db * rstd / n
        def spread(t):
            return t.repeat_interleave(per, 1)[:, None].to(dy.dtype)
        dx = torch.addcmul(spread(k3), dy, (scale * rstd_c)[:, None].to(dy.dtype)).addcmul_(xf, spread(k2))
        dx = dx.view(b, h, w, c).permute(0, 3, 1, 2)
        return dx, g_scale.to(weight.dtype), s1.sum(0).to(weight.dtype), None, None


def _norm_forward(self: nn.GroupNorm, x: torch.Tensor) -> torch.Tensor:
    if x.dim() != 4 or not torch.is_grad_enabled() or not torch.is_autocast_enabled("cpu"):
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)
    dtype = torch.get_autocast_dtype("cpu")
    x = x.to(dtype).contiguous(memory_format=torch.channels_last)
    with torch.autocast("cpu", enabled=False):
        return _GroupNorm.apply(x, self.weight.to(dtype), self.bias.to(dtype), self.num_groups, self.eps)


def speed_up(module: nn.Module) -> nn.Module:
    """Replaces the forward of every plain square convolution and every group
    norm in `module` (they act under autocast with gradients on only)."""
    for m in module.modules():
        if isinstance(m, nn.Conv2d) and m.groups == 1 and m.dilation == (1, 1) \
                and m.kernel_size[0] == m.kernel_size[1] and isinstance(m.padding, tuple):
            m.forward = _forward.__get__(m)
        elif isinstance(m, nn.GroupNorm):
            m.forward = _norm_forward.__get__(m)
    return module
