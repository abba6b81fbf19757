"""Two processes add a number with gloo over the loopback; says so as one JSON line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from datetime import timedelta


def rank(number: int, port: int) -> None:
    """One of the two processes."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=2, timeout=timedelta(seconds=40)
    )
    value = torch.ones(1)
    dist.all_reduce(value)
    dist.destroy_process_group()
    sys.exit(0 if value.item() == 2.0 else 1)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> int:
    port = str(free_port())
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME") or "lo"}
    children = [subprocess.Popen([sys.executable, __file__, str(n), port], env=environ) for n in (0, 1)]
    codes = [child.wait() for child in children]
    if any(codes):
        return 1
    print(json.dumps({"sum": 2}))
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3:
        rank(int(sys.argv[1]), int(sys.argv[2]))
    sys.exit(main())
