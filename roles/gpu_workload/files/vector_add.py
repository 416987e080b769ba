"""Check that this container sees its GPU and that the GPU computes: CUDA's vectorAdd sample, without a compiler."""

from __future__ import annotations

import sys

from cuda import CudaError, Gpu

COUNT = 50_000


def main() -> None:
    """Exit with 1 and the reason if there is no GPU, or one that adds wrongly."""
    try:
        gpu = Gpu()
        print(f"{gpu.name} ({gpu.uuid})")
        # Sums of small whole numbers are exact in 32-bit floats.
        a, b = [float(i) for i in range(COUNT)], [float(2 * i) for i in range(COUNT)]
        wrong = [i for i, total in enumerate(gpu.add(a, b)) if total != 3.0 * i]
    except CudaError as error:
        sys.exit(f"Test FAILED: {error}")
    if wrong:
        sys.exit(f"Test FAILED: {len(wrong)} of {COUNT} sums are wrong, the first is element {wrong[0]}")
    print("Test PASSED")


if __name__ == "__main__":
    main()
