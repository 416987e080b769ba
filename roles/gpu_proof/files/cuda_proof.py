"""Compute on every GPU that this container was given, and leave the result as JSON in the container's status.

The status of a pod can be read without its node. It holds 4,096 bytes, so a server with many GPUs or MIG instances has
a short row for each.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from cuda import CudaError, Driver, Gpu

COUNT = 50_000
MESSAGE = Path("/dev/termination-log")
LIMIT = 4096  # bytes, of the kubelet
# GPUs of one server differ in the first part of their UUID, as in GPU-04d8fdcc.
SHORT = 12
FAILURES = 5  # that fit in any case


def failure(error: CudaError) -> dict[str, Any]:
    return {"text": str(error), "function": error.function, "code": error.code}


def proof(number: int) -> dict[str, Any]:
    """Allocates memory, runs a kernel and compares its result."""
    began = time.monotonic()
    row: dict[str, Any] = {"uuid": "", "error": None}
    try:
        gpu = Gpu(number)
        row["uuid"] = gpu.uuid
        # Sums of small whole numbers are exact in 32-bit floats.
        a, b = [float(i) for i in range(COUNT)], [float(2 * i) for i in range(COUNT)]
        wrong = sum(total != 3.0 * i for i, total in enumerate(gpu.add(a, b)))
        if wrong:
            row["error"] = {"text": f"{wrong} of {COUNT} sums are wrong", "function": "vector_add", "code": 0}
    except CudaError as error:
        row["error"] = failure(error)
    return {**row, "seconds": round(time.monotonic() - began, 3)}


def message(result: dict[str, Any]) -> str:
    """The result as JSON within the limit: whole, then with short UUIDs, and then with the first failures alone."""
    failed = [row for row in result["gpus"] if row["error"]]
    short = [
        {"uuid": row["uuid"][:SHORT], **({"error": row["error"]} if row["error"] else {})} for row in result["gpus"]
    ]
    common = [name for name in result["devices"] if not name[-1].isdigit()]
    for gpus, devices in ((result["gpus"], result["devices"]), (short, common), (failed[:FAILURES], common)):
        text = json.dumps({**result, "gpus": gpus, "devices": devices}, separators=(",", ":"))
        if len(text.encode()) <= LIMIT:
            break
    return text


def main() -> None:
    """Exit with 1 if a GPU does not compute."""
    began = time.monotonic()
    nodes = sorted(path.name for path in Path("/dev").glob("nvidia*"))
    result: dict[str, Any] = {"devices": nodes, "gpus": [], "error": None}
    try:
        result["gpus"] = [proof(number) for number in range(Driver().count())]
    except CudaError as error:
        result["error"] = failure(error)
    text = message({**result, "seconds": round(time.monotonic() - began, 3)})
    print(text)
    MESSAGE.write_text(text, encoding="utf-8")
    if result["error"] or any(row["error"] for row in result["gpus"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
