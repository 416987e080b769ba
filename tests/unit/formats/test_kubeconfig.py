from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.kubeconfig import (
    Access,
    Kubeconfig,
    has_others,
    merged,
    outline,
    removed,
    written,
)
from hypothesis import given
from hypothesis import strategies as st
from kubeconfigs import admin, certificate, production, together

PATH = "/home/me/.kube/config"


def access(**changes: Any) -> Access:
    return Access.read(yaml.safe_dump(admin(**changes)))


def of(document: Any) -> Kubeconfig:
    return Kubeconfig.read(document if isinstance(document, str) else yaml.safe_dump(document), PATH)


def put_in(document: Any, wanted: str = "", **changes: Any) -> tuple[dict[str, Any], str]:
    """The document after a merge, read as kubectl does, and the context."""
    config, names = merged(of(document), access(**changes), wanted, PATH)
    return yaml.safe_load(written(config)), names.context


def test_a_new_file_is_the_clusters_own() -> None:
    assert put_in("") == (admin(), "kubernetes-admin@kubernetes")


def test_others_and_the_current_context_stay() -> None:
    after, context = put_in(production())
    assert after == {**together(production(), admin()), "current-context": "production"}
    assert context == "kubernetes-admin@kubernetes"


def test_a_second_merge_changes_nothing() -> None:
    once, _context = put_in(production())
    assert put_in(once) == (once, "kubernetes-admin@kubernetes")


def test_a_renewed_certificate_replaces_the_old_one() -> None:
    once, _context = put_in(production())
    after, context = put_in(once, serial=2, server="https://192.0.2.1:6443/")
    assert after == together(production(), admin(serial=2, server="https://192.0.2.1:6443/"))
    assert context == "kubernetes-admin@kubernetes"


STAGING = "https://192.0.2.9:6443"


@pytest.mark.parametrize("before", [admin(), together(production(), admin())], ids=["alone", "with others"])
@pytest.mark.parametrize("wanted", ["", "kubernetes-admin@kubernetes", "staging"])
def test_two_clusters_of_one_authority_are_two(before: dict[str, Any], wanted: str) -> None:
    """Neither leads to the other, nor goes with the other."""
    if wanted != "staging":
        with pytest.raises(
            HopError, match=r"another address, https://192\.0\.2\.1:6443 and not https://192\.0\.2\.9:6443"
        ):
            put_in(before, wanted, server=STAGING)
        return
    after, context = put_in(before, wanted, server=STAGING)
    for section in ("clusters", "contexts", "users"):
        assert after[section][:-1] == before[section]
    assert of(after).context(context, PATH) == ("staging", STAGING)
    assert put_in(after, wanted, server=STAGING) == (after, context)
    assert has_others(of(after), access(server=STAGING))
    for gone, left in ((STAGING, "https://192.0.2.1:6443"), ("https://192.0.2.1:6443", STAGING)):
        servers = {entry["server"] for entry in removed(of(after), access(server=gone), PATH).clusters.values()}
        assert left in servers
        assert gone not in servers


def test_names_of_another_cluster_are_left_to_it() -> None:
    """Each cluster of kubeadm has the same ones."""
    other = admin(authority="VEhFSVJT")
    after, context = put_in(other)
    assert [entry["name"] for entry in after["clusters"]] == ["kubernetes", "kubernetes-44f45fb3"]
    assert context == "kubernetes-admin@kubernetes-44f45fb3"
    assert (after["clusters"][0], after["users"][0], after["current-context"]) == (
        other["clusters"][0],
        other["users"][0],
        other["current-context"],
    )
    assert after["contexts"][1]["context"] == {"cluster": "kubernetes-44f45fb3", "user": "kubernetes-admin-44f45fb3"}
    assert put_in(after) == (after, context)


def test_what_a_user_has_renamed_or_added_stays() -> None:
    document = together(production(), admin())
    document["contexts"][1]["name"] = "gpu"
    document["contexts"][1]["context"]["namespace"] = "ml"
    document["clusters"][1]["cluster"]["proxy-url"] = "http://proxy.example"
    after, context = put_in(document, serial=2)
    assert context == "gpu"
    assert after["contexts"] == document["contexts"]
    assert after["clusters"] == document["clusters"]
    assert after["users"][1] == admin(serial=2)["users"][0]


def test_a_user_of_ones_own_keeps_the_login() -> None:
    """A context for the cluster with another user: that user is nobody's to replace, by its certificate neither."""
    data, key = certificate("/CN=me")
    document = together(production(), admin())
    document["users"][1] = {"name": "mine", "user": {"client-certificate-data": data, "client-key-data": key}}
    document["contexts"][1] = {"name": "gpu", "context": {"cluster": "kubernetes", "user": "mine"}}
    after, context = put_in(document)
    assert after["users"][:2] == document["users"]
    assert after["contexts"][:2] == document["contexts"]
    assert context == "kubernetes-admin@kubernetes"
    assert put_in(document, "gpu") == (document, "gpu")


def test_a_user_that_another_cluster_has_too_is_not_changed() -> None:
    document = together(production(), admin())
    document["contexts"][0]["context"]["user"] = "kubernetes-admin"
    after, _context = put_in(document, serial=2)
    assert after["users"][:2] == document["users"]
    assert after["users"][2]["name"] == "kubernetes-admin-44f45fb3"


def test_a_context_can_be_named() -> None:
    after, context = put_in(production(), "gpu")
    assert (after["contexts"][1]["name"], context) == ("gpu", "gpu")
    with pytest.raises(HopError, match=f"context production of {PATH} is of another cluster: eks"):
        put_in(production(), "production")


def test_an_authority_takes_the_place_of_trust_in_all() -> None:
    document = admin()
    document["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    assert put_in(document)[0] == admin()


def test_a_removal_leaves_the_others() -> None:
    document = together(admin(), production())
    after = removed(of(document), access(serial=2), PATH)
    assert yaml.safe_load(written(after)) == {
        **{name: production()[name] for name in ("clusters", "contexts", "users", "apiVersion", "kind")},
        "current-context": "",
    }
    assert after.context("production", PATH) == ("production", "https://eks.example")


def test_a_removal_takes_contexts_and_leaves_users_of_ones_own() -> None:
    document = together(production(), admin())
    document["contexts"].append({"name": "mine", "context": {"cluster": "kubernetes", "user": "me"}})
    after = removed(of(document), access(), PATH)
    assert (list(after.contexts), list(after.users)) == (["production"], ["me"])


@pytest.mark.parametrize(
    ("document", "is_empty"), [(admin(), True), (production(), False), (admin(authority="VEhFSVJT"), False)]
)
def test_only_this_cluster_is_removed(document: dict[str, Any], is_empty: bool) -> None:
    assert removed(of(document), access(), PATH).is_empty is is_empty
    assert has_others(of(document), access()) is not is_empty


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a: b: SECRET", f"{PATH} is not YAML: line 1: mapping values are not allowed here"),
        ("\x00", f"{PATH} is not YAML: "),
        ("users: [{name: a, user: {token: 'SECRET", f"{PATH} is not YAML: line 1: found unexpected end of stream"),
        ("SECRET", f"{PATH} is not a kubeconfig: it is not a mapping"),
        ("clusters: SECRET", f"{PATH} is not a kubeconfig: clusters is not a list"),
        ("users: [{user: {token: SECRET}}]", f"{PATH} is not a kubeconfig: users[0] has no name"),
        ("users: [{name: 1}]", f"{PATH} is not a kubeconfig: users[0] has no name"),
        ("users: [{name: a, user: SECRET}]", f"{PATH} is not a kubeconfig: users[0].user is not a mapping"),
        ("contexts: [{name: a, context: {user: [b]}}]", "cluster or user of contexts[0] is not a name"),
        ("day: 2026-13-45", ""),
    ],
)
def test_what_is_no_kubeconfig(text: str, seen: str) -> None:
    """Without a word of the file: it may be a secret."""
    if not seen:
        assert of(text).is_empty
        return
    with pytest.raises(HopError) as raised:
        of(text)
    assert seen in raised.value.seen
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    ("document", "wanted", "seen"),
    [
        ("", "", f"{PATH} is empty"),
        ("{clusters: [{name: a, cluster: {}}]}", "", f"{PATH} has no contexts"),
        (production(), "gone", f"{PATH} has no context gone"),
        ({**production(), "current-context": "gone"}, "", f"{PATH} has no context gone"),
        ({**production(), "clusters": []}, "", f"context production of {PATH} names the cluster eks, which"),
    ],
)
def test_a_context_that_leads_nowhere(document: Any, wanted: str, seen: str) -> None:
    with pytest.raises(HopError) as raised:
        of(document).context(wanted, PATH)
    assert seen in raised.value.seen
    assert raised.value.fix


@pytest.mark.parametrize("section", ["clusters", "users"])
def test_a_cluster_that_is_incomplete_is_not_merged(section: str) -> None:
    with pytest.raises(HopError, match="the kubeconfig of the cluster"):
        Access.read(yaml.safe_dump({**admin(), section: []}))


def test_an_outline_has_no_secret() -> None:
    document = together(production(), admin())
    said = outline(of(document))
    secrets = [*document["users"][1]["user"].values(), "THE-ONLY-TOKEN"]
    assert [secret for secret in secrets if secret in said] == []
    assert said != outline(of(together(production(), admin(serial=2)))), "a change is seen"


def test_times_stay_as_they_are_written() -> None:
    """Programs in Go read text there."""
    document = production()
    document["users"][0]["user"]["auth-provider"] = {"config": {"expiry": "2026-11-26T10:00:00Z"}}
    text = yaml.safe_dump(document).replace("'2026-11-26T10:00:00Z'", "2026-11-26T10:00:00Z")
    assert "expiry: 2026" in text
    after, _names = merged(of(text), access(), "", PATH)
    assert "expiry: '2026-11-26T10:00:00Z'" in written(after)


NAMES = st.sampled_from(["kubernetes", "kubernetes-admin", "kubernetes-admin@kubernetes", "a", "kubernetes-44f45fb3"])
FILES = st.fixed_dictionaries(
    {
        "clusters": st.lists(
            st.fixed_dictionaries(
                {
                    "name": NAMES,
                    "cluster": st.fixed_dictionaries(
                        {
                            "certificate-authority-data": st.sampled_from(["T1VSUw==", "VEhFSVJT"]),
                            "server": st.sampled_from(["https://192.0.2.1:6443", STAGING]),
                        }
                    ),
                }
            ),
            max_size=3,
            unique_by=lambda entry: entry["name"],
        ),
        "contexts": st.lists(
            st.fixed_dictionaries({"name": NAMES, "context": st.fixed_dictionaries({"cluster": NAMES, "user": NAMES})}),
            max_size=3,
            unique_by=lambda entry: entry["name"],
        ),
        "users": st.lists(
            st.fixed_dictionaries(
                {"name": NAMES, "user": st.sampled_from([{"token": "x"}, admin()["users"][0]["user"]])}
            ),
            max_size=3,
            unique_by=lambda entry: entry["name"],
        ),
    }
)


@given(FILES)
def test_whatever_is_in_the_file_others_keep_what_they_have(document: dict[str, Any]) -> None:
    """Each context of another cluster leads where it did, before, with and after ours; ours leads to ours."""
    before = of(document)
    similar = {*access().of_its_authority(before)} - {*access().clusters_in(before)}
    wanted = "a context of ours" if similar else ""
    with_ours, names = merged(before, access(), wanted, PATH)
    assert merged(with_ours, access(), wanted, PATH) == (with_ours, names)
    context = with_ours.contexts[names.context]
    assert with_ours.clusters[context["cluster"]] == access().cluster
    assert access().is_user(with_ours.users[context["user"]])
    gone = removed(with_ours, access(), PATH)
    assert not access().clusters_in(gone)
    ours = set(access().clusters_in(before))
    for name, theirs in before.contexts.items():
        if theirs["cluster"] not in ours:
            for after in (with_ours, gone):
                assert after.contexts[name] == theirs
                assert after.clusters.get(theirs["cluster"]) == before.clusters.get(theirs["cluster"])
                assert after.users.get(theirs["user"]) == before.users.get(theirs["user"])
