"""Every package imports, as what it should be."""

from __future__ import annotations

import importlib
from typing import Any

from selftest.checks import GPU, CannotRunError, check, require


@check("torch imports, as a build for CUDA")
def torch_is_for_cuda() -> str:
    import torch

    require(torch.version.cuda, f"torch {torch.__version__} is a build without CUDA")
    return f"{torch.__version__}, CUDA {torch.version.cuda}"


@check("torchvision imports and knows its C++ operators")
def torchvision_works() -> str:
    torchvision = _optional("torchvision")
    import torch

    kept = torchvision.ops.nms(torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]]), torch.ones(3), 0.5)
    require(kept.tolist() == [0, 2], f"nms kept {kept.tolist()}")
    return str(torchvision.__version__)


@check("torchaudio imports and resamples")
def torchaudio_works() -> str:
    torchaudio = _optional("torchaudio")
    import torch

    wave = torchaudio.functional.resample(torch.sin(torch.arange(1600) / 10), 16000, 8000)
    require(wave.shape == (800,), f"shape {tuple(wave.shape)}")
    return str(torchaudio.__version__)


@check("numpy and torch share memory")
def numpy_and_torch_share() -> None:
    import numpy
    import torch

    array = numpy.zeros(4, dtype=numpy.float32)
    torch.from_numpy(array)[0] = 3
    require(array[0] == 3, "a change in the tensor did not show in the array")


@check("one cuDNN is mapped, and it is torch's")
def one_cudnn_is_mapped() -> str:
    import torch

    version = torch.backends.cudnn.version()
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        files = sorted({line.split(None, 5)[-1].strip() for line in maps if "/libcudnn.so" in line})
    require(len(files) == 1, f"mapped: {files}")
    return f"{version}, {files[0]}"


@check("torch sees the GPU", needs=GPU)
def torch_sees_the_gpu() -> str:
    import torch

    capability = torch.cuda.get_device_capability()
    arch = torch.cuda.get_arch_list()
    require(torch.ones(2, device="cuda").sum().item() == 2, "1 + 1 is not 2 on the GPU")
    return f"{torch.cuda.get_device_name()}, capability {capability}, built for {' '.join(arch)}"


def _optional(name: str) -> Any:
    """A package that the image has, and a checkout's machine may lack."""
    from selftest.checks import in_image

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if in_image() or error.name != name:
            raise
        raise CannotRunError(f"{name} is not installed here") from None
