# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Versions of the APIs in which autoscalers are read and written."""

from __future__ import annotations

HPA_VERSION = "autoscaling/v2"
SCALED_OBJECT_VERSION = "keda.sh/v1alpha1"
