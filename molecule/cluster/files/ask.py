"""Asks a URL five times a second until FILE.stop is there. FILE gets how often, and what went wrong.

Ends without a word once another run has begun: after one that failed, nobody writes FILE.stop.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from urllib.request import urlopen


def main(url: str, result: Path) -> None:
    stop, owner = Path(f"{result}.stop"), Path(f"{result}.pid")
    for file in (stop, result):
        file.unlink(missing_ok=True)
    owner.write_text(f"{os.getpid()}")
    asked, failed = 0, []
    while not stop.exists():
        if not owner.exists() or owner.read_text() != f"{os.getpid()}":
            return
        asked += 1
        try:
            urlopen(url, timeout=3).close()
        except OSError as error:
            failed.append(f"{time.strftime('%H:%M:%S')} {error}")
        time.sleep(0.2)  # the pace of the client, not a wait
    result.write_text(json.dumps({"asked": asked, "failed": failed}))


main(sys.argv[1], Path(sys.argv[2]))
