"""What `make pins-check` says of repositories that have moved on, and of those that do not answer."""

from __future__ import annotations

import gzip
from collections.abc import Mapping

import pytest
from pins_check import CHANGED, NOT_RUN, Ask, compare, index, main, parse

from lab import upstream


def stanza(package: upstream.Package, **fields: str) -> str:
    rows = {"Package": package.name, "Version": package.version, "Architecture": "amd64", **package.fields, **fields}
    return "".join(f"{name}: {text}\n" for name, text in rows.items())


def of(repository: str) -> list[upstream.Package]:
    return [package for package in upstream.packages() if package.repository == repository]


def said(repository: str, *stanzas: str) -> list[str]:
    return compare(upstream.repositories()[repository], parse("\n".join(stanzas)))


def answering(texts: Mapping[str, bytes]) -> Ask:
    def ask(url: str) -> bytes:
        if url not in texts:
            raise OSError("no route to host")
        return texts[url]

    return ask


@pytest.mark.parametrize("repository", [name for name, row in upstream.repositories().items() if row.path])
def test_nothing_is_said_of_a_repository_that_is_as_its_rows(repository: str) -> None:
    assert said(repository, *map(stanza, of(repository))) == []


def test_a_newer_version_is_told() -> None:
    rows = of("docker-noble")
    *_, newest = (row for row in rows if row.name == "containerd.io")

    assert said("docker-noble", *map(stanza, rows), stanza(newest, Version="2.4.0-1~ubuntu.24.04~noble")) == [
        "containerd.io: newer than the rows: 2.4.0-1~ubuntu.24.04~noble"
    ]


def test_a_version_that_is_gone_is_told() -> None:
    assert said("docker-jammy", *map(stanza, of("docker-jammy")[1:])) == [
        "containerd.io: in the rows, and not there: 2.2.6-1~ubuntu.22.04~jammy"
    ]


def test_a_package_that_is_gone_is_told() -> None:
    assert said(
        "kubernetes-1.36", *(stanza(package) for package in of("kubernetes-1.36") if package.name != "cri-tools")
    ) == ["cri-tools: not there"]


def test_a_dependency_that_its_row_does_not_say_is_told() -> None:
    first, *rest = of("docker-jammy")

    assert said("docker-jammy", stanza(first, Depends="libc6"), *map(stanza, rest)) == [
        f"containerd.io {first.version}: Depends is `libc6`, and its row says `libc6 (>= 2.34), libseccomp2 (>= 2.5.0)`"
    ]


def test_without_an_answer_it_is_not_run() -> None:
    told: list[str] = []

    assert main(answering({}), told.append) == NOT_RUN
    assert len(told) == sum(1 for row in upstream.repositories().values() if row.path)
    assert all(line.startswith("NOT RUN for ") and "no route to host" in line for line in told)


def test_a_change_is_told_though_another_repository_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = upstream.repositories()
    monkeypatch.setattr(upstream, "repositories", lambda: {name: rows[name] for name in ("docker-noble", jammy.name)})
    told: list[str] = []

    assert main(answering(of_jammy(b"no key")), told.append) == CHANGED
    assert told[:2] == ["docker-jammy:", "  gpg: its fingerprint is none"]
    assert told[2].startswith("NOT RUN for docker-noble: ")


def test_an_index_lies_where_apt_looks_for_it() -> None:
    asked = {
        "https://download.docker.com/linux/ubuntu/dists/noble/stable/binary-amd64/Packages.gz": gzip.compress(b"a"),
        "https://pkgs.k8s.io/core:/stable:/v1.36/deb/Packages.gz": gzip.compress(b"b"),
    }
    rows = upstream.repositories()

    assert index(answering(asked), rows["docker-noble"]) == "a"
    assert index(answering(asked), rows["kubernetes-1.36"]) == "b"


def test_another_key_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "repositories", lambda: {"docker-jammy": jammy})
    told: list[str] = []

    assert main(answering(of_jammy(b"no key")), told.append) == CHANGED
    assert told == ["docker-jammy:", "  gpg: its fingerprint is none"]


def of_jammy(key: bytes) -> dict[str, bytes]:
    """What that repository answers: packages as its rows say, and this key."""
    packages = "\n".join(map(stanza, of("docker-jammy"))).encode()
    return {
        "https://download.docker.com/linux/ubuntu/dists/jammy/stable/binary-amd64/Packages.gz": gzip.compress(packages),
        "https://download.docker.com/linux/debian/gpg": key,
    }


jammy = upstream.repositories()["docker-jammy"]
