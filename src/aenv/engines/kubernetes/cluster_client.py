"""The API server, with errors in our words: every failure is one line that says what to do.

A request that the server answers with 429, or that meets a server which restarts, is tried again with a growing
pause; what changes something is repeated only where that is safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import httpx2 as httpx
from httpx2.websockets import HTTPXWSException, WebSocketUpgradeError
from lightkube import AsyncClient
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ApiError, ConfigError, LoadResourceError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.core_v1 import Pod, PodLog
from lightkube.types import PatchType
from wsproto.utilities import LocalProtocolError

from ...base.errors import AEnvError, Conflict, Forbidden, InvalidRequest, NotFound, TooManyRequests, Unavailable
from .cluster_access import ClusterAccess, cluster_config, one_line

logger = logging.getLogger("aenv.engines.kubernetes")

Result = TypeVar("Result")

# Plain objects, not typed models: a template may have fields that are newer than the models.
Pods = create_namespaced_resource("", "v1", "Pod", "pods")
ConfigMaps = create_namespaced_resource("", "v1", "ConfigMap", "configmaps")
Claims = create_namespaced_resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
Services = create_namespaced_resource("", "v1", "Service", "services")
Events = create_namespaced_resource("", "v1", "Event", "events")
Deployments = create_namespaced_resource("apps", "v1", "Deployment", "deployments")
Policies = create_namespaced_resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")

_ATTEMPTS = 5
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
_TIMEOUT = 30.0
_FOR_ANSWERS = httpx.Timeout(_TIMEOUT, connect=5.0)
_FOR_STREAMS = httpx.Timeout(_TIMEOUT, connect=5.0, read=None)
_CHUNK = 500
_EXEC_MESSAGES = 16  # that may wait for who reads them
_EXEC_MESSAGE_BYTES = 1 << 20
_EXEC_PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"]
# ConfigError, KeyError and OSError come from what gives the credentials, ValueError from an answer that is none.
_FAILURES = (httpx.HTTPError, ApiError, OSError, LoadResourceError, ConfigError, KeyError, ValueError)


class Cluster:
    """One namespace of a cluster. `async with` closes its connections."""

    def __init__(self, access: ClusterAccess) -> None:
        """InvalidRequest when there is no configuration that can be used."""
        config = cluster_config(access)
        self._config = config
        self.server = config.cluster.server
        try:
            self._client = _client(config, access.namespace, _FOR_ANSWERS)
        except (ConfigError, OSError, ValueError) as error:
            raise InvalidRequest(
                f"the credentials of cluster {self.server} cannot be used: {one_line(error)}"
            ) from None
        self.namespace = self._client.namespace

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.aclose()

    async def check(self) -> None:
        """Return when we may do what the engine needs. One line on the first thing that does not work."""
        try:
            await self.list_with_version(Pods, {"aenv.owner": "nobody"})
        except NotFound as error:
            raise Unavailable(f"what answers at {self.server} has no Pods: {error.message}") from None
        with contextlib.suppress(NotFound):
            # A dry run asks for the right, and makes nothing.
            await self.delete(Pods, "aenv-no-such-pod", dry_run=True)
        probe = {"metadata": {"name": "aenv-probe"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        # What a namespace refuses of this Pod, by its quota or its policies, it may take of an instance.
        with contextlib.suppress(Conflict, TooManyRequests, InvalidRequest, NotTaken):
            await self.create(Pods, probe, dry_run=True)

    # Objects

    async def create(self, kind: Any, manifest: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Conflict when there is one of that name. Not repeated after an answer that was lost."""
        made = await self._ask(lambda: self._client.create(kind(manifest), dry_run=dry_run), is_safe=False)
        return plain(made)

    async def get(self, kind: Any, name: str) -> dict[str, Any]:
        return plain(await self._ask(lambda: self._client.get(kind, name)))

    async def patch(
        self, kind: Any, name: str, change: Mapping[str, Any], *, strategic: bool = False
    ) -> dict[str, Any]:
        """A merge. With `metadata.resourceVersion` in it, Conflict when another was faster.

        A strategic one takes `$patch: replace` in a mapping whose other fields shall go.
        """
        patch_type = PatchType.STRATEGIC if strategic else PatchType.MERGE
        return plain(await self._ask(lambda: self._client.patch(kind, name, dict(change), patch_type=patch_type)))

    async def delete(self, kind: Any, name: str, *, grace: int | None = None, dry_run: bool = False) -> None:
        await self._ask(lambda: self._client.delete(kind, name, grace_period=grace, dry_run=dry_run))

    async def list_with_version(
        self, kind: Any, labels: Mapping[str, str], fields: Mapping[str, str] | None = None
    ) -> tuple[list[dict[str, Any]], str]:
        """All of them, and the version of the list, from which a watch can go on."""

        async def ask() -> tuple[list[dict[str, Any]], str]:
            found = self._client.list(
                kind, labels=dict(labels), fields=dict(fields or {}) or None, chunk_size=_CHUNK
            )
            return [plain(each) async for each in found], found.resourceVersion

        return await self._ask(ask)

    async def watch(
        self, kind: Any, labels: Mapping[str, str], version: str, seconds: int
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Changes since the version, for at most so long. `Gone` when the server has forgotten that version."""
        try:
            async with asyncio.timeout(seconds + _TIMEOUT):
                changes = self._client.watch(
                    kind, labels=dict(labels), resource_version=version, server_timeout=seconds
                )
                async for change, found in changes:
                    yield change, plain(found)
        except TimeoutError:
            return
        except _FAILURES as error:
            raise self._failure(answer_of(error)) from error

    @contextlib.asynccontextmanager
    async def log(
        self, name: str, container: str, *, follow: bool = False, tail: int | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """What a container has printed, as it is. On a connection of its own, which ends with it."""
        given = {"container": container, "follow": "true" if follow else None, "tailLines": tail}
        async with contextlib.AsyncExitStack() as stack:
            client = _client(self._config, self.namespace, _FOR_STREAMS)
            stack.push_async_callback(client.aclose)
            inner: Any = client._client
            request = inner.build_adapter_request(inner.prepare_request("get", PodLog, name=name, params=given))
            try:
                response = await inner.send(request, stream=True)
                stack.push_async_callback(response.aclose)
                if response.is_error:
                    inner.raise_for_status(response)
            except _FAILURES as error:
                raise self._failure(answer_of(error)) from error
            try:
                yield response.aiter_bytes()
            except (httpx.HTTPError, OSError) as error:
                raise self._failure(error) from error

    @contextlib.asynccontextmanager
    async def program(self, pod: str, container: str, words: Sequence[str]) -> AsyncIterator[ProgramChannels]:
        """Start a program in a container, on a connection of its own, which ends with it."""
        asked = {"command": list(words), "container": container, "stdin": True, "stdout": True, "stderr": True}
        async with contextlib.AsyncExitStack() as stack:
            client = _client(self._config, self.namespace, _FOR_STREAMS)
            stack.push_async_callback(client.aclose)
            inner: Any = client._client
            request = inner.prepare_request("exec", Pod, name=pod, params=asked)
            session = inner._client.websocket(
                request.url,
                params=request.params,
                subprotocols=_EXEC_PROTOCOLS,
                queue_size=_EXEC_MESSAGES,
                max_message_size_bytes=_EXEC_MESSAGE_BYTES,
                # Who reads slowly would not see the answer in time.
                keepalive_ping_interval_seconds=None,
            )
            try:
                opened = await stack.enter_async_context(session)
            except WebSocketUpgradeError as error:
                said = f"the program {words[0]!r} does not start in Pod {pod!r}"
                raise _refusal(error.response.status_code, said, self.server, self.namespace) from error
            except (HTTPXWSException, *_FAILURES) as error:
                raise self._failure(error) from error
            yield ProgramChannels(opened)

    # Failures

    async def _ask(self, request: Callable[[], Awaitable[Result]], *, is_safe: bool = True) -> Result:
        pause = _FIRST_PAUSE
        for attempt in range(_ATTEMPTS):
            try:
                return await request()
            except _FAILURES as error:
                failure = self._failure(answer_of(error))
                again = isinstance(failure, TooManyRequests) or (is_safe and isinstance(failure, Unavailable))
                if not again or attempt == _ATTEMPTS - 1:
                    raise failure from error
                asked = min(max(pause, asked_pause(answer_of(error))), _LONGEST_PAUSE)
                await asyncio.sleep(asked * random.uniform(0.8, 1.2))
                pause *= 2
        raise AssertionError("the last attempt returns or raises")

    def _failure(self, error: Exception) -> AEnvError:
        return failure(error, self.server, self.namespace)


class ProgramChannels:
    """The streams of a program that the API server has started: each message begins with the number of its own."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def send(self, data: bytes) -> None:
        """To its standard input. OSError when it has none any more."""
        try:
            await self._session.send_bytes(b"\0" + data)
        except (HTTPXWSException, LocalProtocolError) as error:
            raise ConnectionResetError("the program has ended") from error

    async def receive(self) -> tuple[int, bytes] | None:
        """1 and 2: what it has printed; 3: how it has ended. None when there is nothing more."""
        try:
            message = await self._session.receive_bytes()
        except HTTPXWSException:
            return None
        return message[0], message[1:]


def _client(config: SingleConfig, namespace: str | None, timeout: httpx.Timeout) -> AsyncClient:
    client = AsyncClient(config, namespace=namespace, timeout=timeout)
    inner: Any = client._client
    inner._client.event_hooks = {"request": [_trace], "response": [_read_refusal]}
    return client


async def _read_refusal(response: httpx.Response) -> None:
    """Of an answer that is a stream, too, such as that of a watch, where it cannot be read when it is an error."""
    if response.is_error:
        await response.aread()


async def _trace(request: httpx.Request) -> None:
    """Close a connection whose TLS handshake fails or is cancelled: httpcore leaves it open in the second case."""
    connected: list[Any] = []

    async def told(event: str, what: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            connected[:] = [what["return_value"]]
        elif event == "connection.start_tls.failed":
            await connected[0].aclose()

    request.extensions["trace"] = told


class NotTaken(Forbidden):
    """Who asks has the right, and a quota or a policy of the namespace refuses the object."""


class Gone(Unavailable, code="gone"):
    """The version to go on from is too old: list again."""


def answer_of(error: Exception) -> Exception:
    """The answer that an error is about: lightkube fails with a KeyError at one without a content type."""
    found: BaseException | None = error
    while isinstance(found, KeyError):
        found = found.__context__
    return found if isinstance(found, Exception) else error


def asked_pause(error: Exception) -> float:
    """The seconds after which the server wants to be asked again; 0 where it does not say."""
    response = getattr(error, "response", None)
    asked = response.headers.get("retry-after", "") if response is not None else ""
    return float(asked) if asked.isdigit() else 0.0


def failure(error: Exception, server: str, namespace: str) -> AEnvError:
    """An error of the client in our words."""
    if isinstance(error, ApiError):
        return _refusal(error.status.code or 500, error.status.message or str(error), server, namespace)
    if isinstance(error, httpx.HTTPStatusError):
        return _refusal(error.response.status_code, _words(error.response) or str(error), server, namespace)
    text = one_line(error)
    if isinstance(error, ConfigError | KeyError | FileNotFoundError | PermissionError | json.JSONDecodeError):
        said = f"no {text}" if isinstance(error, KeyError) else text
        return Unavailable(f"the kubeconfig gives no credentials for the cluster at {server}: {said}")
    if isinstance(error, ValueError):
        return Unavailable(f"what answers at {server} is not the API server of a cluster: {text}")
    if "certificate" in text.lower() or "SSL" in text:
        return Unavailable(f"the cluster at {server} refused our certificate: {text}; renew the kubeconfig")
    return Unavailable(f"the cluster at {server} cannot be reached: {text or type(error).__name__}")


def _words(refused: httpx.Response) -> str:
    """What the server says in an answer that refuses: the message of a Status, or else its text."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(refused.json()["message"])
    return refused.text


def _refusal(code: int, message: str, server: str, namespace: str) -> AEnvError:
    text = one_line(message)
    match code:
        case 401:
            return Unavailable(f"the cluster at {server} does not accept our credentials: renew the kubeconfig")
        case 403 if "exceeded quota" in text:
            return TooManyRequests(f"namespace {namespace!r} is full: {text}")
        case 403 if " cannot " not in text:
            return NotTaken(f"namespace {namespace!r} of the cluster does not take it: {text}")
        case 403:
            return Forbidden(f"no rights in namespace {namespace!r} of the cluster: {text}")
        case 404:
            return NotFound(f"not found in the cluster: {text}")
        case 409:
            return Conflict(f"the cluster refused a change: {text}")
        case 410:
            return Gone(text)
        case 429:
            return TooManyRequests(f"the cluster at {server} has too many requests: {text}")
        case 400 | 422:
            return InvalidRequest(f"the cluster refused what we asked for: {text}")
    return Unavailable(f"the cluster at {server} answered {code}: {text}")


def plain(found: Any) -> dict[str, Any]:
    """An object of the client as plain dicts."""
    made = found.to_dict() if hasattr(found, "to_dict") else dict(found)
    assert isinstance(made, dict)
    return made
