"""Bare metal in a box: servers that are podman containers, and a mirror that serves them what an air-gapped site would."""
