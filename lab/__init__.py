"""Bare metal in a box: servers that are podman containers, and a mirror such as an air-gapped site has."""
