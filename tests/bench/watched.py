"""The operator as a program that watches its own event loop: ``python watched.py KUBECONFIG REPORT``.

After SIGTERM the report (JSON) has the longest times in which the loop answered nobody, in seconds, each with the
moment at which it ended, from the first moment on, and the largest resident memory, in MiB.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from gputask.controller import app
from gputask.kube.config import connect

BEAT_SECONDS = 0.005


async def _listen(blocks: list[tuple[float, float]]) -> None:
    clock = asyncio.get_running_loop().time
    began = last = clock()
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        blocks.append((clock() - last - BEAT_SECONDS, clock() - began))
        blocks.sort(reverse=True)
        del blocks[5:]
        last = clock()


def peak_mib() -> float:
    """Not getrusage(): its ru_maxrss begins with the memory of the process that started this one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def tell(report: Path, found: dict[str, object]) -> None:
    report.write_text(json.dumps(found))


async def _run(kubeconfig: Path, report: Path) -> None:
    blocks: list[tuple[float, float]] = []
    listening = asyncio.create_task(_listen(blocks))
    try:
        await app.run(connect(kubeconfig=kubeconfig), host="127.0.0.1", port=0)
    finally:
        listening.cancel()
        tell(report, {"blocks": blocks, "mib": peak_mib()})


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), Path(sys.argv[2])))
