"""What comes in from the API server, less what nobody here reads: of many objects it is most of the memory."""

from __future__ import annotations

from typing import Any

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation: a second copy of the whole object, written by kubectl apply."""


def slim(manifest: dict[str, Any]) -> dict[str, Any]:
    """The same object, without its managed fields and without what kubectl keeps for itself.

    A PUT that lacks managed fields leaves those that are stored; annotations are never PUT, only patched.
    """
    metadata = manifest.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict):
            annotations.pop(LAST_APPLIED, None)
    return manifest
