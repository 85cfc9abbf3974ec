"""Handlers of the flow in `test_flows`. A payload or a file in the folder that they are told says what goes wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from noonbell import App, Fail

app = App("flow-app")


@app.job
async def convert(file: str, folder: str) -> dict[str, Any]:
    path = Path(folder)
    if (path / f"broken-{file}").exists():
        raise Fail(f"{file} cannot be converted")
    while (path / "hold").exists():  # noqa: ASYNC110 - another process removes the file
        await asyncio.sleep(0.02)
    return {"file": file, "size": len(file)}


@app.job
async def load(sizes: list[Any], folder: str) -> int:
    if (Path(folder) / "broken-load").exists():
        raise Fail("the warehouse is closed")
    return sum(each["size"] for each in sizes)
