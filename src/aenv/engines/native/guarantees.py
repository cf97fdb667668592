"""What the native engine says of itself: what keeps its instances apart, in words for people."""

from __future__ import annotations

from ...isolation.sandbox import landlock


def isolation() -> tuple[str, ...]:
    """What keeps instances apart."""
    names = ("user", "pid", "mount", "network", "ipc", "uts", "cgroup")
    parts = [f"{name} namespace" for name in names] + ["read-only root", "no capabilities", "seccomp"]
    return (*parts, *(["landlock"] if landlock.abi() >= landlock.LEAST_ABI else []))


def summary(missing: str | None) -> str:
    """The same in one line; or what the host is `missing`, and what that leads to."""
    if missing:
        return (
            f"cannot isolate instances on this host and refuses to create them: {missing}; or use --engine process"
        )
    return "every instance has its own namespaces and rootfs, no capabilities, and seccomp"
