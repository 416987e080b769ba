"""What is pinned and what the mirror carries, against the rows of what upstream has."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import chain

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.containerd.decisions import PACKAGE
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.driver.packages import SYSTEMS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.kubernetes.decisions import PACKAGES as KUBERNETES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.toolkit.decisions import PACKAGES

from lab import debian, packages, upstream
from lab.systems import systems
from lab.versions import names, versions

# Roles that name what they install as data. The driver's depends on the system: see tests/unit/nodes.
NAMED = {}
PINNED = {
    "containerd.io": [PACKAGE],
    "nvidia-container-toolkit": [*PACKAGES],
    "nvidia-driver": ["nvidia-persistenced"],
    "nvlsm": ["nvlsm"],
    "kubernetes": [*KUBERNETES],
}
# Of the distribution, and on every server or brought from its mirror.
DISTRIBUTION = {*debian.NODE, *chain(*debian.FROM_DISTRIBUTION.values()), "libc6", "libseccomp2", "libsystemd0"}
DISTRIBUTION |= {"libibumad3", "libnftables1"}  # infiniband-diags and nftables need them


def pin(system: str, name: str) -> str:
    """The version or pattern that a system gets by default."""
    own = {key.lower().replace(" ", "-"): pins for key, pins in versions()["packages_by_system"].items()}
    return own.get(system, {}).get(name) or versions()["packages"][name]


def had(system: str, name: str) -> list[str]:
    """Versions of a package that a system's repositories have, its distribution's own apart."""
    there = upstream.systems()[system]
    return [
        package.version
        for package in upstream.packages()
        if package.name == name and package.repository in there and upstream.repositories()[package.repository].path
    ]


@pytest.mark.parametrize("system", systems())
@pytest.mark.parametrize(("name", "package"), [(name, package) for name, rows in PINNED.items() for package in rows])
def test_a_pin_is_of_a_version_that_upstream_has(system: str, name: str, package: str) -> None:
    wanted = pin(system, name)

    assert [version for version in had(system, package) if fnmatchcase(version, wanted)], (
        f"{system} gets {package} {wanted}, and its repositories have {had(system, package)}"
    )


def test_every_pin_is_looked_at() -> None:
    assert set(PINNED) == set(versions()["packages"])
    assert {name for pins in versions()["packages_by_system"].values() for name in pins} <= set(PINNED)


def test_every_supported_system_has_rows() -> None:
    assert set(upstream.systems()) == set(systems())


def test_a_fingerprint_is_that_of_the_row() -> None:
    pinned = {name: row["fingerprint"] for name, row in versions()["repositories"].items()}

    assert pinned == {name: key.fingerprint for name, key in upstream.keys().items()}


@pytest.mark.parametrize("system", systems())
def test_the_role_s_table_of_systems_agrees_with_the_rows(system: str) -> None:
    row = {name.lower().replace(" ", "-"): row for name, row in SYSTEMS.items()}[system]
    repository = upstream.repositories()[f"nvidia-cuda-{row.repository}"]
    branches = {
        int(package.version.partition(".")[0])
        for package in upstream.packages()
        if package.repository == repository.name and package.name == "nvidia-persistenced"
    }

    assert repository.name in upstream.systems()[system]
    assert (row.key, row.key_file) == (repository.key, upstream.keys()[repository.key].file)
    assert (row.first_branch or min(branches)) == min(branches)
    assert {580, 535} & branches or row.first_branch


def test_rows_say_where_they_are_from() -> None:
    """Of keys, repositories, releases and packages."""
    files = [upstream._read(file.stem) for file in upstream.HERE.glob("*.yml")]
    named = [row for rows in files for kind in ("keys", "repositories") for row in rows.get(kind, {}).values()]
    listed = [row for rows in files for release in rows.get("releases", {}).values() for row in release]
    for row in [*named, *listed, *(row for rows in files for row in rows.get("packages", []))]:
        assert row.get("mark") in ("seen", "inferred"), row
        assert row.get("source"), row
        assert str(row.get("date"))[:2] == "20", row


@pytest.mark.parametrize("package", ["seen", "inferred"])
@pytest.mark.parametrize("release", ["seen", "inferred"])
def test_a_package_is_seen_where_its_row_and_that_of_its_release_are(package: str, release: str) -> None:
    about = {"source": "an index", "date": "2026"}
    rows = {
        "releases": {"ours": [{"versions": ["1-1"], "mark": release, **about}]},
        "packages": [{"names": ["a"], "repositories": ["ours"], "mark": package, **about}],
    }

    [made] = upstream._packages(rows)
    assert made.mark == ("seen" if {package, release} == {"seen"} else "inferred")


def test_the_pin_of_debian_12_is_inferred() -> None:
    """docs/versions.md says so; once it was seen there, the page has to change."""
    marks = {
        package.mark
        for package in upstream.packages()
        if package.repository == "nvidia-cuda-debian12"
        and fnmatchcase(package.version, pin("debian-12", "nvidia-driver"))
    }

    assert marks == {"inferred"}


def test_nothing_is_in_two_rows() -> None:
    keys = [(package.repository, package.name, package.version) for package in upstream.packages()]

    assert sorted(keys) == sorted(set(keys))


@pytest.mark.parametrize("system", systems())
def test_the_mirror_satisfies_what_its_packages_depend_on(system: str) -> None:
    there = [package for package in packages.carried() if package.repository in upstream.systems()[system]]
    offered = DISTRIBUTION.union(*([package.name, *package.provides] for package in there))

    for package in there:
        left_out = packages.recipes()[package.name].get("without", [])
        for choice in package.depends:
            assert offered.union(left_out) & set(choice), f"{package.name} {package.version} wants {choice}"


@pytest.mark.parametrize("name", packages.recipes())
def test_a_recipe_makes_a_package_that_upstream_has(name: str) -> None:
    assert [package for package in packages.carried() if package.name == name]


def test_a_system_of_its_own_has_its_own_pin() -> None:
    assert names()["nvidia-driver/debian-13"] == versions()["packages_by_system"]["Debian 13"]["nvidia-driver"][:-2]
