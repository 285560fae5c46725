"""Names of resources: which are valid, and what they are called in a container's environment."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

MAX_NAME = 63

ENV_PREFIX = "GPUTASK_"
LABELS_SUFFIX = "_LABELS"
"""``GPUTASK_<RESOURCE>_LABELS`` has the labels of an indexed pool."""

_SEGMENT = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_NAME = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})?")
_DEVICE_ID = re.compile(_SEGMENT)
_TAKEN = {"VARIANT", "DEVICES", "ALLOCATION"}
_KUBERNETES = {"cpu", "memory", "ephemeral-storage", "pods"}


@lru_cache(maxsize=4096)
def check_name(name: str) -> None:
    """Whether a name can be an annotation key and, upper-cased, the name of an environment variable.

    :raises ValueError: one line, with the name.
    """
    if len(name) > MAX_NAME:
        raise ValueError(
            f"resource name {name[:20] + '...'!r} has {len(name)} characters; at most {MAX_NAME} are allowed"
        )
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be a resource name: use letters, digits, '.', '_', '-' and at most one '/' between them"
        )
    if _env_suffix(name) in _TAKEN:
        raise ValueError(f"resource name {name!r} would overwrite the variable {env_name(name)}; choose another name")


def check_device_id(device_id: str) -> None:
    """Whether a device id can be the suffix of a pool's name.

    :raises ValueError: one line, with the id.
    """
    if len(device_id) > MAX_NAME or not _DEVICE_ID.fullmatch(device_id):
        raise ValueError(
            f"{device_id[:80]!r} cannot be a device id: use at most {MAX_NAME} letters, digits, '.', '_', '-'"
        )


@lru_cache(maxsize=4096)
def env_name(name: str) -> str:
    """The environment variable of a resource: ``runtime/aaa`` is ``GPUTASK_RUNTIME_AAA``."""
    return ENV_PREFIX + _env_suffix(name)


def base_name(name: str) -> str:
    """The resource of a name as a request writes it, without the number of a device: ``gpuSlot/0`` is ``gpuSlot``."""
    base, slash, suffix = name.rpartition("/")
    return base if slash and suffix.isdecimal() else name


def is_kubernetes(name: str) -> bool:
    """Whether Kubernetes itself defines the resource, so that it comes from allocatable and from nowhere else."""
    return name in _KUBERNETES or name.startswith("hugepages-")


def collision(names: Iterable[str]) -> str | None:
    """One line if two different resources would share an environment variable, else None."""
    seen: dict[str, str] = {}
    for name in sorted({base_name(name) for name in names}):
        for variable in (env_name(name), env_name(name) + LABELS_SUFFIX):
            other = seen.setdefault(variable, name)
            if other != name:
                return f"resources {other!r} and {name!r} would both be {variable}; rename one of them"
    return None


def _env_suffix(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())
