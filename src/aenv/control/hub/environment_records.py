"""What the hub keeps of one version of an environment, and how it is told to clients."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ...base import refs
from ...base.config import FILE_NAME, Project
from ...base.errors import InvalidRequest
from ...base.refs import Ref
from ...base.wire import HUB_STATUSES, timestamp
from ..serving.masking import masked
from ..stores.base import Document, Put
from .access import EnvironmentAccess

KIND = "environments"
READY, RELEASED = HUB_STATUSES.index("Ready"), HUB_STATUSES.index("Released")
_CONFIGS = ("build_config", "test_config", "deploy_config")
_CONTENT = ("description", "tags", "code_url", "artifacts", *_CONFIGS, "digest")
_TIMES = ("created_at", "updated_at")
_SHOWN = ("name", "description", "version", "tags", "code_url", "status", "artifacts", *_CONFIGS, *_TIMES)


@dataclass(frozen=True)
class EnvironmentRecord:
    """One version. Its `deploy_config` has the values of variables, which no reply shows."""

    name: str
    version: str
    policy: EnvironmentAccess | None = None
    """None: a folder on this machine, which has no owner and cannot be changed through the hub."""
    description: str = ""
    tags: tuple[str, ...] = ()
    code_url: str = ""
    status: int = READY
    artifacts: tuple[dict[str, str], ...] = ()
    build_config: dict[str, Any] | None = None
    test_config: dict[str, Any] | None = None
    deploy_config: dict[str, Any] | None = None
    digest: str | None = None
    parts: tuple[str, ...] = ()
    """The versions that were taken of the environments that it is composed of, in the order of its `uses`."""
    size_bytes: int | None = None
    pushed_by: str | None = None
    created_at: str = ""
    updated_at: str = ""

    @property
    def ref(self) -> Ref:
        return Ref(self.name, self.version)

    @classmethod
    def of(cls, document: Document) -> EnvironmentRecord:
        value = document.value
        known = {field.name: value[field.name] for field in fields(cls) if field.name in value}
        return cls(
            **{
                **known,
                "policy": EnvironmentAccess.of(value["policy"]),
                "tags": tuple(value["tags"]),
                "artifacts": tuple(value["artifacts"]),
                "parts": tuple(value.get("parts", ())),
            }
        )

    @classmethod
    def of_project(cls, project: Project) -> EnvironmentRecord:
        changed = timestamp((project.path / FILE_NAME).stat().st_mtime)
        return cls(
            name=project.name,
            version=project.version,
            description=project.description,
            tags=project.tags,
            artifacts=project.artifacts,
            build_config=dict(project.build.raw),
            test_config=dict(project.test.raw),
            deploy_config=dict(project.deploy.raw),
            created_at=changed,
            updated_at=changed,
        )

    def put(self, revision: int) -> Put:
        """How it is written: with the lists in which it stands, and its use of a bundle."""
        assert self.policy
        place = refs.place(self.version)
        overall = f"{self.name} {place}"  # a blank sorts before all that a name may hold
        lists = ["all", *self.policy.lists(), *(f"tag={tag}" for tag in self.tags)]
        return Put(
            KIND,
            str(self.ref),
            {**asdict(self), "policy": self.policy.value()},
            revision,
            terms={**dict.fromkeys(lists, overall), f"name={self.name}": place},
            counts={f"bundle:{self.digest}": 1} if self.digest else {},
        )

    def described(self) -> dict[str, Any]:
        """As lists show it: the published `Env`."""
        return {
            "id": f"{self.name}-{self.version}",
            **{name: getattr(self, name) for name in _SHOWN},
            "tags": list(self.tags),
            "artifacts": list(self.artifacts),
            "deploy_config": masked(self.deploy_config) if self.deploy_config is not None else None,
        }

    def history_line(self) -> dict[str, Any]:
        shown = ("version", "status", "digest", "pushed_by", "created_at", "updated_at")
        return {name: getattr(self, name) for name in shown}

    def differs_from(self, other: EnvironmentRecord) -> list[str]:
        """The names of what is not the same in both; nothing and empty are the same."""
        return [name for name in _CONTENT if (getattr(self, name) or None) != (getattr(other, name) or None)]

    def with_image(self, image: str) -> EnvironmentRecord:
        others = tuple(artifact for artifact in self.artifacts if artifact.get("type") != "image")
        return replace(self, artifacts=(*others, {"type": "image", "content": image}), updated_at=timestamp())


def read_status(value: str | int) -> int:
    """The number of a status: as a word in any case, or as itself."""
    known = {name.lower(): number for number, name in enumerate(HUB_STATUSES)}
    number = known.get(value.lower()) if isinstance(value, str) else value
    if number is None or not 0 <= number < len(HUB_STATUSES):
        raise InvalidRequest(f"field 'status': no status {value!r}; use one of {', '.join(HUB_STATUSES)}")
    return number
