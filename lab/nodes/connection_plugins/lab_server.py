"""Podman's connection with pipelining, as docs/servers.md asks of ssh. Its podman is the file beside this folder."""

from __future__ import annotations

from ansible_collections.containers.podman.plugins.connection import podman

DOCUMENTATION = podman.DOCUMENTATION


class Connection(podman.Connection):  # type: ignore[misc]  # Ansible has no types
    transport = "lab_server"
    has_pipelining = True  # podman exec, which this one does not call, closes the standard input
