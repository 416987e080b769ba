# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.yaml import to_yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.gitops.argocd import argocd_files
from ansible_collections.kubegpu.autoscale.plugins.module_utils.gitops.flux import flux_files
from ansible_collections.kubegpu.autoscale.plugins.module_utils.gitops.parts import Files, Part, Place, read_parts
from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import (
    Secret,
    random_texts_in,
    secrets_in,
)

_TOOLS: dict[str, Callable[[Sequence[Part], Place], Files]] = {"argocd": argocd_files, "flux": flux_files}


def gitops_files(parts: Sequence[Mapping[str, Any]], tool: str, place: Mapping[str, Any]) -> dict[str, str]:
    """The files for the tool: the text of each file, by its path in the folder.

    Raises: AnsibleFilterError if the tool is unknown, or if the folder would contain a secret.
    """
    if tool not in _TOOLS:
        raise AnsibleFilterError(f"gitops: {tool} is not one of {', '.join(_TOOLS)}")
    settings = _plain(place)
    public = {str(name) for name in settings.pop("public", ())}
    where = Place(**settings)
    read = read_parts(_plain(parts), where.mirror, where.inventory)
    files = _TOOLS[tool](read, where)
    # Secrets in values are named by their option. The other ones are addresses with a login, for example of a mirror.
    known = _secrets(read)
    texts = {text for _name, text in known}
    known += [
        (f"{path}: {secret.path}", secret.text)
        for path in files
        for secret in secrets_in(files[path])
        if secret.text not in texts
    ]
    reasons = {
        "would lie there for all to read": known,
        "looks random, as keys and tokens do": _places(read, random_texts_in),
    }
    for reason, places in reasons.items():
        if found := dict.fromkeys(name for name, _text in places if name not in public):
            raise AnsibleFilterError(
                f"gitops -> repository: {'; '.join(found)} {reason}. Nothing was written. Next: put it into a Secret "
                "of the cluster, and give its name instead; if it is public, add this place to gitops_public_values"
            )
    return {path: to_yaml(manifests) for path, manifests in files.items()}


def _secrets(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Places of secrets in the values of releases, and Secrets among the objects."""
    objects = [(part.name, manifest) for part in parts for manifest in part.objects]
    return _places(parts, secrets_in) + [
        (f"{name}: Secret {manifest['metadata']['name']}", "")
        for name, manifest in objects
        if manifest["kind"] == "Secret"
    ]


def _places(parts: Sequence[Part], find: Callable[[Any], list[Secret]]) -> list[tuple[str, str]]:
    """Places of what is found in the values of releases, each with its text."""
    return [
        (f"{part.name}: {secret.path}", secret.text)
        for part in parts
        if part.release
        for secret in find(part.release.values)
    ]


def _plain(value: Any) -> Any:
    """The value without templates, which only reading an item resolves."""
    if isinstance(value, Mapping):
        return {str(name): _plain(value[name]) for name in value}
    return [_plain(item) for item in value] if isinstance(value, list) else value


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gitops_files": gitops_files}
