"""`make tarball`: lists the dependencies of the collection as a CycloneDX document beside the tarball.

From requirements.txt, galaxy.yml and versions.yml, so it has what those pin; what charts pin in turn is theirs to say.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import tarball
import yaml
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

CHECKOUT = tarball.CHECKOUT


def document() -> str:
    """CycloneDX 1.6 as JSON, reproducible for a commit."""
    galaxy = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())
    subject = Component(
        name=f"{galaxy['namespace']}.{galaxy['name']}",
        version=galaxy["version"],
        type=ComponentType.APPLICATION,
        licenses=[LicenseFactory().make_from_string("GPL-3.0-or-later")],
        bom_ref="collection",
    )
    bom = Bom(
        components=components(galaxy),
        metadata=BomMetaData(component=subject, timestamp=datetime.fromtimestamp(tarball.commit_time(), UTC)),
        serial_number=uuid5(NAMESPACE_URL, f"{galaxy['repository']}@{galaxy['version']}-{tarball.commit_time()}"),
    )
    bom.register_dependency(subject, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def components(galaxy: dict[str, Any]) -> Iterator[Component]:
    pins = yaml.safe_load((CHECKOUT / "roles" / "_common" / "defaults" / "main" / "versions.yml").read_text())
    pins = pins["kubegpu_pinned_versions"]
    for line in (CHECKOUT / "requirements.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, version = re.split(r"(?=[<>=])", line, maxsplit=1)
            yield _component(PackageURL("pypi", name=name), version)
    for name, version in galaxy["dependencies"].items():
        namespace, _dot, own = name.partition(".")
        yield _component(PackageURL("generic", "ansible-galaxy/" + namespace, own), version)
    for name, version in pins["packages"].items():
        yield _component(PackageURL("deb", name=name), version)
    for system, packages in pins["packages_by_system"].items():
        for name, version in packages.items():
            yield _component(
                PackageURL("deb", name=name, qualifiers={"distro": system.lower().replace(" ", "-")}), version
            )
    for name, chart in {**pins["charts"], **pins["operators"], **pins["networks"]}.items():
        yield _component(
            PackageURL("helm", name=name, qualifiers={"repository_url": chart["repository"]}), chart["version"]
        )
    for address in pins["images"].values():
        repository, _colon, tag = address.rpartition(":")
        yield _component(
            PackageURL("oci", name=repository.rpartition("/")[2], qualifiers={"repository_url": repository}), tag
        )
    for name, archive in pins["archives"].items():
        for platform, digest in archive["sha256"].items():
            url = PackageURL("generic", name=name, qualifiers={"platform": platform})
            yield _component(url, archive["version"], HashType(alg=HashAlgorithm.SHA_256, content=digest))


def _component(url: PackageURL, version: str, *hashes: HashType) -> Component:
    """An exact version is part of the address; a range is not."""
    exact = url._replace(version=version) if re.fullmatch(r"[\w.+~-]+", version) else url
    return Component(
        name=url.name, version=version, purl=exact, type=ComponentType.LIBRARY, hashes=hashes, bom_ref=exact.to_string()
    )


def main() -> None:
    [built] = (CHECKOUT / "build" / "release").glob("*.tar.gz")
    path = Path(str(built).removesuffix(".tar.gz") + ".cdx.json")
    path.write_text(document())
    sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
