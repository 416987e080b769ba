"""Asks a URL five times a second until FILE.stop is there. FILE gets how often, and what went wrong."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from urllib.request import urlopen


def main(url: str, result: Path) -> None:
    stop = Path(f"{result}.stop")
    for file in (stop, result):
        file.unlink(missing_ok=True)
    asked, failed = 0, []
    while not stop.exists():
        asked += 1
        try:
            urlopen(url, timeout=3).close()
        except OSError as error:
            failed.append(f"{time.strftime('%H:%M:%S')} {error}")
        time.sleep(0.2)  # the pace of the client, not a wait
    result.write_text(json.dumps({"asked": asked, "failed": failed}))


main(sys.argv[1], Path(sys.argv[2]))
