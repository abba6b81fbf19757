"""A tiny wheel made on the spot: installing needs no index then, whatever stands between here and there."""

from __future__ import annotations

import zipfile
from pathlib import Path

NAME = "tinything"


def make_wheel(folder: Path) -> Path:
    """Write tinything 1.0, a module and a command of that name."""
    path = folder / f"{NAME}-1.0-py3-none-any.whl"
    info = f"{NAME}-1.0.dist-info"
    files = {
        f"{NAME}.py": 'def main():\n    print("tiny and installed")\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{NAME} = {NAME}:main\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)
    return path
