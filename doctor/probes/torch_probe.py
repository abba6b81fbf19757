"""Imports torch in the environment's Python and says what it sees, as one JSON line."""

from __future__ import annotations

import json
import time


def main() -> None:
    begun = time.monotonic()
    import torch  # here, because its time is measured

    seconds = time.monotonic() - begun
    available = torch.cuda.is_available()
    cudnn = torch.backends.cudnn.version()
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        mapped = {line.split(None, 5)[-1].strip() for line in maps if "/libcudnn.so" in line}
    seen = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": cudnn,
        "available": available,
        "arch": torch.cuda.get_arch_list() if available else [],
        "cudnn_files": sorted(mapped),
        "seconds": seconds,
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
