"""torch.compile: the C++ compiler on the CPU, Triton on the GPU."""

from __future__ import annotations

from typing import Any

from selftest.checks import GPU, check, require


@check("torch.compile gives what eager mode gives, on the CPU")
def compiles_on_the_cpu() -> None:
    _compare("cpu")


@check("torch.compile gives what eager mode gives, on the GPU (Triton)", needs=GPU)
def compiles_on_the_gpu() -> None:
    _compare("cuda")


@check("torch.compile trains on the GPU", needs=GPU)
def compiled_model_trains() -> str:
    import torch

    torch.manual_seed(0)
    model: Any = torch.compile(
        torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).cuda()
    )
    x = torch.randn(256, 32, device="cuda")
    y = x[:, :1] * 2
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    require(losses[-1] < 0.3 * losses[0], f"loss {losses[0]:.2f} -> {losses[-1]:.2f}")
    return f"loss {losses[0]:.2f} -> {losses[-1]:.2f}"


def _compare(device: str) -> None:
    import torch

    def function(x: Any, y: Any) -> Any:
        return (torch.sin(x) @ y).relu().sum(0) + x.mean()

    x, y = torch.randn(64, 32, device=device), torch.randn(32, 16, device=device)
    seen = torch.compile(function)(x, y)
    wanted = function(x, y)
    require(torch.allclose(seen, wanted, rtol=1e-3, atol=1e-3), f"{(seen - wanted).abs().max()}")
