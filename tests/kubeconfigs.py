"""Kubeconfigs as kubeadm and others write them, with certificates of the tests."""

from __future__ import annotations

import subprocess
from base64 import b64encode
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


@cache
def certificate(subject: str, serial: int = 1) -> tuple[str, str]:
    """A certificate for a subject and its key, as kubeconfigs have them."""
    with TemporaryDirectory() as folder:
        key, pem = Path(folder) / "key", Path(folder) / "pem"
        words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-set_serial", str(serial)]
        subprocess.run(["openssl", *words, "-days", "30", "-keyout", key, "-out", pem], check=True, capture_output=True)
        return b64encode(pem.read_bytes()).decode(), b64encode(key.read_bytes()).decode()


def admin(authority: str = "T1VSUw==", serial: int = 1, server: str = "https://192.0.2.1:6443") -> dict[str, Any]:
    """admin.conf of kubeadm."""
    data, key = certificate("/O=kubeadm:cluster-admins/CN=kubernetes-admin", serial)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"cluster": {"certificate-authority-data": authority, "server": server}, "name": "kubernetes"}],
        "contexts": [
            {
                "context": {"cluster": "kubernetes", "user": "kubernetes-admin"},
                "name": "kubernetes-admin@kubernetes",
            }
        ],
        "current-context": "kubernetes-admin@kubernetes",
        "users": [
            {"name": "kubernetes-admin", "user": {"client-certificate-data": data, "client-key-data": key}},
        ],
    }


def production() -> dict[str, Any]:
    """Somebody's file: one cluster, with the only token for it."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [
            {"cluster": {"certificate-authority-data": "RUtT", "server": "https://eks.example"}, "name": "eks"}
        ],
        "contexts": [{"context": {"cluster": "eks", "namespace": "shop", "user": "me"}, "name": "production"}],
        "current-context": "production",
        "users": [{"name": "me", "user": {"token": "THE-ONLY-TOKEN"}}],
    }


def together(*files: dict[str, Any]) -> dict[str, Any]:
    """As `kubectl config view --flatten` merges files; the first one's current context stays."""
    sections = {name: [entry for file in files for entry in file[name]] for name in ("clusters", "contexts", "users")}
    return {**files[0], **sections}
