"""Objects from files: which there are, and whether each is what its kind says. Nothing runs on a bad file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputask.api import names
from gputask.cli.documents import Document, read
from gputask.cli.errors import BadInputError
from gputask.simulate.scenario import Millis

_KINDS = {"Node": "v1", "Pod": "v1", "GpuTask": names.API_VERSION, "GpuNode": names.API_VERSION}
_NAMESPACED = {"Pod", "GpuTask"}
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LONGEST_NAME = {"GpuTask": 63}
_SECONDS = re.compile(r"\d{1,12}(\.\d{1,3})?")


@dataclass(frozen=True, slots=True)
class Object:
    """One object of a file that we read: its manifest is a mapping with a name, and its annotations are texts."""

    place: str
    kind: str
    namespace: str | None
    name: str
    manifest: Mapping[str, Any]

    @property
    def key(self) -> str:
        """``namespace/name``, or the name of what has no namespace."""
        return self.name if self.namespace is None else f"{self.namespace}/{self.name}"

    @property
    def uid(self) -> str:
        """Its UID, or its key where it has none yet."""
        return self.metadata.get("uid") or self.key

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._part("metadata")

    @property
    def spec(self) -> Mapping[str, Any]:
        return self._part("spec")

    @property
    def status(self) -> Mapping[str, Any]:
        return self._part("status")

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.get("annotations") or {}

    def _part(self, name: str) -> Mapping[str, Any]:
        part = self.manifest.get(name)
        return part if isinstance(part, dict) else {}

    def __str__(self) -> str:
        return f"{self.place} {self.kind} {self.key}"


@dataclass(slots=True)
class Objects:
    """The objects of some files by kind, in the order in which they stand there."""

    nodes: list[Object] = field(default_factory=list)
    gpunodes: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    tasks: list[Object] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[Object]:
        return {"Node": self.nodes, "GpuNode": self.gpunodes, "Pod": self.pods, "GpuTask": self.tasks}[kind]


def load(files: Sequence[str]) -> Objects:
    """All objects of files, folders and stdin.

    :raises BadInputError: as :func:`~gputask.cli.documents.read` and :func:`collect`.
    """
    if not files:
        raise BadInputError("no files: name some with -f FILE")
    return collect(read(files))


def collect(documents: Iterable[Document]) -> Objects:
    """The objects among some documents; other kinds are ignored.

    :raises BadInputError: one line for each object that is not what it says, and for each that stands there twice
        (several documents of one Node are its versions, if they differ in ``sim.gputask.dev/at``).
    """
    problems: list[str] = []
    objects = Objects()
    seen: dict[tuple[str, ...], Object] = {}
    for document in documents:
        found = _object(document, problems)
        if found is None:
            continue
        identity = (found.kind, found.key, found.annotations.get(names.SIM_AT, "0") if found.kind == "Node" else "")
        if identity in seen:
            problems.append(f"{found}: stands twice, first at {seen[identity].place}; remove one")
            continue
        seen[identity] = found
        objects.of_kind(found.kind).append(found)
    _refuse_shared_uids(objects.tasks, problems)
    if problems:
        raise BadInputError.of(problems)
    return objects


def _refuse_shared_uids(tasks: Iterable[Object], problems: list[str]) -> None:
    seen: dict[str, Object] = {}
    for task in tasks:
        other = seen.setdefault(task.uid, task)
        if other is not task:
            problems.append(f"{task}: metadata.uid: {other.key} at {other.place} has it too; remove it")


def sim_annotation(found: Object, annotation: str) -> str | None:
    """A sim annotation of an object, or of the template of a GpuTask."""
    template = found.spec.get("template")
    metadata = template.get("metadata") if isinstance(template, dict) else None
    inner = metadata.get("annotations") if isinstance(metadata, dict) else None
    text = found.annotations.get(annotation, inner.get(annotation) if isinstance(inner, dict) else None)
    return text if text is None else str(text).strip()


def sim_seconds(
    found: Object, annotation: str, problems: list[str], *, otherwise: Millis | None = None
) -> Millis | None:
    """A sim annotation in seconds, as milliseconds; ``otherwise`` if it is absent; None and a new line in ``problems``
    if it is no number of seconds."""
    text = sim_annotation(found, annotation)
    if text is None:
        return otherwise
    millis = parse_seconds(text)
    if millis is None:
        problems.append(
            f"{found}: metadata.annotations[{annotation}]: {_echo(text)} is not a number of seconds; "
            "write 0 or more with at most 3 decimals, like '12.5'"
        )
    return millis


def parse_seconds(text: str) -> Millis | None:
    """Seconds with at most 3 decimals as milliseconds, or None if the text is none."""
    if not _SECONDS.fullmatch(text):
        return None
    whole, _, decimals = text.partition(".")
    return int(whole) * 1000 + int(decimals.ljust(3, "0"))


def _object(document: Document, problems: list[str]) -> Object | None:
    manifest = document.value
    if not isinstance(manifest, dict):
        problems.append(
            f"{document.place}: is no Kubernetes object; write a mapping with apiVersion, kind and metadata"
        )
        return None
    kind, version = manifest.get("kind"), manifest.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        missing = "apiVersion" if isinstance(kind, str) else "kind"
        problems.append(f"{document.place}: {missing}: missing; write apiVersion, kind and metadata")
        return None
    if kind not in _KINDS or version.partition("/")[0] != _KINDS[kind].partition("/")[0]:
        return None
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    where = f"{document.place} {kind} {name[:80] if isinstance(name, str) else ''}".rstrip()
    faults = [*_version(version, _KINDS[kind]), *_metadata(metadata, kind)]
    problems += [f"{where}: {fault}" for fault in faults]
    if faults or not isinstance(metadata, dict):
        return None
    namespace = (metadata.get("namespace") or "default") if kind in _NAMESPACED else None
    return Object(document.place, kind, namespace, metadata["name"], manifest)


def _version(version: str, right: str) -> Iterable[str]:
    if version != right:
        yield f"apiVersion: {_echo(version)} is unknown; write {right}"


def _metadata(metadata: object, kind: str) -> Iterable[str]:
    if not isinstance(metadata, dict):
        yield "metadata: missing; write a mapping with a name"
        return
    name = metadata.get("name")
    longest = _LONGEST_NAME.get(kind, 253)
    if name is None:
        yield "metadata.name: missing"
    elif not isinstance(name, str) or not _SUBDOMAIN.fullmatch(name) or len(name) > longest:
        yield (
            f"metadata.name: {_echo(name)} is no name; write at most {longest} lower-case letters, digits, '-' and "
            "'.', quoted if it looks like a number"
        )
    for key in ("namespace", "uid", "creationTimestamp", "deletionTimestamp"):
        value = metadata.get(key)
        if value is not None and not isinstance(value, str):
            yield f"metadata.{key}: {_echo(value)} is not text; quote it"
    namespace = metadata.get("namespace")
    if kind in _NAMESPACED and isinstance(namespace, str) and namespace and not _LABEL.fullmatch(namespace):
        yield f"metadata.namespace: {_echo(namespace)} is no name; write at most 63 lower-case letters, digits and '-'"
    for key in ("labels", "annotations"):
        entries = metadata.get(key)
        if entries is not None and not isinstance(entries, dict):
            yield f"metadata.{key}: is not a mapping of texts"
            continue
        for entry, value in (entries or {}).items():
            if not isinstance(value, str):
                yield f"metadata.{key}[{str(entry)[:80]}]: {_echo(value)} is not text; quote it"


def _echo(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
