"""`make browser`: the documentation and the reports in Chromium, on a phone and a desktop, light and dark.

    browser.py            every page; prints each fault, and exits with 1 if there are any
    browser.py WORD ...   only pages whose path contains a word

A fault is text that is cut off, overlaps, breaks inside a word or is hard to read, a page that scrolls sideways, or a
message on the console. tools/layout.js detects them. build/browser/pictures has screenshots.
"""

from __future__ import annotations

import base64
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "unit" / "report"), str(ROOT / "tests" / "unit" / "loadtest")]

import pages
from collection import install
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

install()

from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.autoscaler_plan import plan_page
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.html import html
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.loadtest import loadtest_page
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.proof import proof_page
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.target import target_page
from doctor_reports import REPORTS
from load_runs import a_run
from target_sweep import a_search
from test_plan_report import RESULT as PLAN
from test_proof_report import proof

PLACE = ROOT / "build" / "browser"
LAYOUT = (Path(__file__).parent / "layout.js").read_text()
PHONE, DESKTOP = 390, 1400
SCHEMES = ("light", "dark")
SMALLEST_LETTER = 7.5  # pixels, in pictures
TALLEST = 2600  # pixels of a page that a picture shows
# Debian's and Ubuntu's names, and those of GitHub's runners.
CHROMIUM, DRIVER = ("chromium", "google-chrome", "chromium-browser"), ("chromedriver",)
# One page of the site of each kind: these are checked in each width and scheme, the others once in each width.
SHOWN = (
    "site/index.html",
    "site/docs/existing-clusters.html",
    "site/docs/benchmarks.html",
    "site/docs/doctor/hpa.html",
    "site/docs/doctor/index.html",
    "site/modules/gpu_autoscaler.html",
    "site/roles/kubernetes.html",
    "site/CHANGELOG.html",
)


class MissingError(Exception):
    """A missing program, and how to install it."""


def program(names: Sequence[str]) -> str:
    """Raises: MissingError."""
    found = next(filter(None, map(shutil.which, names)), None)
    if not found:
        raise MissingError(f"{names[0]} is not installed: run `apt-get install chromium chromium-driver`")
    return found


def reports() -> Mapping[str, str]:
    """Name and HTML of each kind of report."""
    return {
        **{f"doctor-{name}": html(report) for name, report in REPORTS.items() if name != "hostile"},
        "loadtest": loadtest_page(a_run()),
        "loadtest-late": loadtest_page(a_run({0: (1, 1, 0.25), 50: (5, 1, 1.6)})),
        "target": target_page(a_search()),
        "plan": plan_page(PLAN),
        "proof": proof_page(proof()),
    }


def write() -> list[str]:
    """The site and the reports in one folder; returns the paths of all pages."""
    if pages.main():
        sys.exit("browser: the site was not built")
    shutil.rmtree(PLACE, ignore_errors=True)
    shutil.copytree(pages.PLACE / "site", PLACE / "site")
    (PLACE / "reports").mkdir()
    for name, page in reports().items():
        (PLACE / "reports" / f"{name}.html").write_text(page)
    (PLACE / "pictures").mkdir()
    return sorted(str(path.relative_to(PLACE)) for path in PLACE.rglob("*.html") if path.name != "404.html")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Requests are not printed."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Address of a folder on a server on this machine only."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


@contextmanager
def browser() -> Iterator[Chrome]:
    """Raises: MissingError."""
    options = ChromeOptions()
    options.binary_location = program(CHROMIUM)
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--force-color-profile=srgb",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options, ChromeService(program(DRIVER)))
    try:
        yield chrome
    finally:
        chrome.quit()


def load(chrome: Chrome, address: str, scheme: str = SCHEMES[0]) -> None:
    """A page in a new profile, in which no earlier page has set colors."""
    media = [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    chrome.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": address, "storageTypes": "local_storage"})
    chrome.get(address)


def look(chrome: Chrome, width: int) -> list[str]:
    """The faults of the loaded page at this width."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    found = list(chrome.execute_script(f"return (async (...arguments) => {{{LAYOUT}}})(...arguments)", SMALLEST_LETTER))
    return [*found, *(f"the console has: {entry['message']}" for entry in chrome.get_log("browser"))]


def picture(chrome: Chrome, path: Path) -> None:
    """The page from its top, as a PNG."""
    size = chrome.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], TALLEST), "scale": 1}
    taken = chrome.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    path.write_bytes(base64.b64decode(taken["data"]))


def is_shown(path: str) -> bool:
    """Whether a page is checked in both schemes, and has screenshots."""
    return path in SHOWN or path.startswith("reports/")


def faults(paths: Sequence[str], report: Callable[[str], None] = print) -> int:
    """Report each fault of these pages; returns their number."""
    count = 0
    with served(PLACE) as address, browser() as chrome:
        views = [(path, scheme) for path in paths for scheme in SCHEMES[: 1 + is_shown(path)]]
        for path, scheme in views:
            load(chrome, f"{address}/{path}", scheme)
            for width in (PHONE, DESKTOP):
                found = look(chrome, width)
                count += len(found)
                for fault in found:
                    report(f"{path}, {width} px, {scheme}: {fault}")
                if is_shown(path):
                    name = path.removesuffix(".html").replace("/", "-")
                    picture(chrome, PLACE / "pictures" / f"{name}-{width}-{scheme}.png")
    return count


def main(words: Sequence[str]) -> int:
    paths = [path for path in write() if not words or any(word in path for word in words)]
    try:
        count = faults(paths)
    except MissingError as error:
        sys.exit(f"browser -> {error}")
    print(f"browser: {count} faults on {len(paths)} pages; pictures in {PLACE / 'pictures'}")
    return int(bool(count))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
