"""Print a weak C function for each one that nvml.h declares: the library is whole, and what nvml.c defines wins."""

import re
import sys
from pathlib import Path


def declared(header: str) -> list[str]:
    """Names of the functions that the text of nvml.h declares."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", " ", header, flags=re.DOTALL)
    return sorted(set(re.findall(r"\bDECLDIR\s+(?:const\s+char\s*\*\s*)?(nvml\w+)\s*\(", code)))


if __name__ == "__main__":
    for name in declared(Path(sys.argv[1]).read_text()):
        print(f"__attribute__((weak)) int {name}(void) {{ return 3; }} /* NVML_ERROR_NOT_SUPPORTED */")
