"""The GPU's arithmetic against the CPU's in double precision, cuDNN, NCCL, a training step."""

from __future__ import annotations

from typing import Any

from selftest.checks import GPU, TWO_GPUS, check, require
from selftest.ranks import run_ranks


@check("matrix products on the GPU equal the CPU's", needs=GPU)
def products_are_right() -> str:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = torch.randn(1024, 512, dtype=torch.float64), torch.randn(512, 768, dtype=torch.float64)
    errors = {}
    for kind, most in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.float16, 5e-3), (torch.bfloat16, 2e-2)):
        seen = (a.to("cuda", kind) @ b.to("cuda", kind)).cpu().double()
        errors[str(kind)[6:]] = _error(seen, a @ b)
        require(errors[str(kind)[6:]] < most, f"{kind}: relative error {errors[str(kind)[6:]]:.1e}")
    return ", ".join(f"{kind} {error:.0e}" for kind, error in errors.items())


@check("elementwise functions and reductions on the GPU equal the CPU's", needs=GPU)
def functions_are_right() -> None:
    import torch

    x = torch.rand(1 << 20, dtype=torch.float64) + 0.5
    for name in ("sin", "exp", "log", "sqrt", "tanh", "cumsum", "sum", "sort"):
        arguments = (0,) if name == "cumsum" else ()
        seen, wanted = (getattr(torch, name)(y, *arguments) for y in (x.cuda(), x))
        seen, wanted = (y[0] if isinstance(y, tuple) else y for y in (seen, wanted))
        require(_error(seen.cpu(), wanted) < 1e-11, f"{name}: {_error(seen.cpu(), wanted):.1e}")


@check("linear algebra on the GPU (cuSOLVER), FFT (cuFFT) and sparse products (cuSPARSE) equal the CPU's", needs=GPU)
def libraries_are_right() -> None:
    import torch

    a = torch.randn(200, 200, dtype=torch.float64) + 200 * torch.eye(200)
    x = torch.randn(200, 3, dtype=torch.float64)
    require(_error(torch.linalg.solve(a.cuda(), (a @ x).cuda()).cpu(), x) < 1e-10, "solve")
    wave = torch.randn(4096, dtype=torch.float64)
    require(_error(torch.fft.rfft(wave.cuda()).cpu(), torch.fft.rfft(wave)) < 1e-12, "rfft")
    sparse = (a * (a > 1)).to_sparse_csr()
    require(_error((sparse.cuda() @ x.cuda()).cpu(), sparse @ x) < 1e-12, "sparse product")


@check("a cuDNN convolution, forward and backward, equals the CPU's", needs=GPU)
def convolution_is_right() -> str:
    import torch

    require(torch.backends.cudnn.is_available() and torch.backends.cudnn.enabled, "cuDNN is not in use")
    torch.backends.cudnn.allow_tf32 = False
    results = [_convolve(device) for device in ("cpu", "cuda")]
    for name, wanted, seen in zip(("output", "gradient of the input", "gradient of the kernel"), *results):
        require(_error(seen, wanted) < 1e-5, f"{name}: {_error(seen, wanted):.1e}")
    return f"cuDNN {torch.backends.cudnn.version()}"


@check("a training step with automatic mixed precision lowers the loss", needs=GPU)
def mixed_precision_trains() -> str:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10))
    model, x, y = model.cuda(), torch.randn(64, 1, 16, 16).cuda(), torch.randint(0, 10, (64,)).cuda()
    model(x)
    optimizer, scaler, losses = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda"), []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    require(losses[-1] < 0.5 * losses[0], f"loss {losses[0]:.2f} -> {losses[-1]:.2f}")
    return f"loss {losses[0]:.2f} -> {losses[-1]:.2f}"


@check("a CUDA graph replays what it recorded", needs=GPU)
def graph_replays() -> None:
    import torch

    x, graph = torch.ones(1024, device="cuda"), torch.cuda.CUDAGraph()
    (x * 2).sum()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = x * 2
    x.fill_(21)
    graph.replay()
    torch.cuda.synchronize()
    require(bool((y == 42).all()), f"{y[:4].tolist()}")


@check("NCCL loads, with one rank on one GPU", needs=GPU)
def nccl_loads() -> str:
    import torch

    run_ranks("nccl", 1)
    return ".".join(str(part) for part in torch.cuda.nccl.version())


@check("NCCL adds over two GPUs", needs=TWO_GPUS)
def nccl_adds() -> None:
    run_ranks("nccl", 2)


def _convolve(device: str) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(1)
    x, w = torch.randn(8, 16, 32, 32, generator=generator), torch.randn(24, 16, 3, 3, generator=generator)
    x, w = x.to(device).requires_grad_(), w.to(device).requires_grad_()
    y = torch.nn.functional.conv2d(x, w, padding=1)
    (y * torch.linspace(-1, 1, y.numel(), device=device).view_as(y)).sum().backward()
    return [one.detach().cpu() for one in (y, x.grad, w.grad)]


def _error(seen: Any, wanted: Any) -> float:
    """The relative error; NaN never passes a comparison."""
    return float((seen - wanted).abs().norm() / wanted.abs().norm())
