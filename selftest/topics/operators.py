"""Torch's arithmetic on the CPU: forward, backward, linear algebra, storing."""

from __future__ import annotations

import io

from selftest.checks import check, require


@check("a gradient is what the calculus says")
def gradient_is_right() -> None:
    import torch

    x = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    (x**3).sum().backward()
    require(torch.allclose(x.grad, 3 * x.detach() ** 2), f"{x.grad}")


@check("a convolution equals its definition")
def convolution_is_right() -> None:
    import torch

    image, kernel = torch.randn(1, 1, 8, 8, dtype=torch.float64), torch.randn(1, 1, 3, 3, dtype=torch.float64)
    windows = image.unfold(2, 3, 1).unfold(3, 3, 1)
    wanted = (windows * kernel[0, 0]).sum((-1, -2))
    require(torch.allclose(torch.nn.functional.conv2d(image, kernel), wanted), "they differ")


@check("linear algebra solves a system")
def system_is_solved() -> None:
    import torch

    a, x = torch.randn(64, 64, dtype=torch.float64) + 64 * torch.eye(64), torch.randn(64, dtype=torch.float64)
    require(torch.allclose(torch.linalg.solve(a, a @ x), x), "the solution is wrong")


@check("a small network learns")
def network_learns() -> str:
    import torch

    torch.manual_seed(0)
    x = torch.randn(512, 8)
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    accuracy = (model(x).argmax(1) == y).float().mean().item()
    require(accuracy > 0.9, f"accuracy {accuracy:.2f}")
    return f"accuracy {accuracy:.2f}"


@check("what is saved loads again, without running code")
def saved_is_loaded() -> None:
    import torch

    state = {"weights": torch.randn(5), "step": 3}
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    require(torch.equal(loaded["weights"], state["weights"]) and loaded["step"] == 3, f"{loaded}")


@check("DataLoader workers hand batches over")
def workers_hand_over() -> None:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(64.0))
    seen = torch.cat([batch[0] for batch in DataLoader(data, batch_size=16, num_workers=2)])
    require(torch.equal(seen, torch.arange(64.0)), f"{seen}")
