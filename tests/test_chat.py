"""`aenv.Chat`: what it sends to a model's server, by which way, and what its errors leave out."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from aenv import AEnvError, Chat, ModelFailed
from aenv.client import chat as chats
from tests.model_servers import Reply, model

KEY = "sk-secret"
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Relay:
    """An HTTP proxy that opens tunnels to this machine, or refuses them."""

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.heads: list[str] = []
        self.passed = b""
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        if self.refusal:
            writer.write(f"HTTP/1.1 {self.refusal}\r\ncontent-length: 0\r\n\r\n".encode())
            writer.close()
            return
        port = int(head.split()[1].rpartition(":")[2])
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pump(reader, up_writer))
            tasks.create_task(self._pump(up_reader, writer))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                self.passed += data
                sink.write(data)
        except ConnectionError:
            pass
        finally:
            sink.close()


@asynccontextmanager
async def relay(refusal: str = "") -> AsyncIterator[Relay]:
    made = Relay(refusal)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's certificate for localhost and models.example, which this process trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.DNSName("models.example")]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "server.pem"
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    file.write_bytes(key.private_bytes(pem, *form) + made.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    return context


async def ask(url: str, key: str | None = KEY) -> str:
    async with Chat(url, key, attempts=1) as chat:
        return str((await chat.complete({"model": "tiny", "messages": []})).message["content"])


async def test_plain_http_goes_to_the_proxy_with_the_whole_url(monkeypatch: pytest.MonkeyPatch) -> None:
    async with model({"content": "hello"}) as proxy:
        address = proxy.url.removeprefix("http://").removesuffix("/v1")
        monkeypatch.setenv("http_proxy", f"http://me:pass%20word@{address}")
        assert await ask("http://models.example:8000/v1") == "hello"
    assert proxy.headers[0].startswith("POST http://models.example:8000/v1/chat/completions HTTP/1.1\r\n")
    assert "proxy-authorization: Basic bWU6cGFzcyB3b3Jk\r\n" in proxy.headers[0]


async def test_https_goes_through_a_tunnel_in_which_the_proxy_reads_nothing(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with model({"content": "hello"}, tls=tls) as server, relay() as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        url = server.url.replace("localhost", "models.example")
        assert await ask(url) == "hello"
    assert proxy.heads[0].startswith(f"CONNECT {url.removeprefix('https://').removesuffix('/v1')} HTTP/1.1\r\n")
    assert f"authorization: Bearer {KEY}\r\n" in server.headers[0]
    assert proxy.passed
    assert KEY.encode() not in proxy.passed


async def test_https_without_a_proxy_goes_to_the_server(tls: ssl.SSLContext) -> None:
    async with model({"content": "hello"}, tls=tls) as server:
        assert await ask(server.url) == "hello"


async def test_a_proxy_that_refuses_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async with relay("403 egress to models.example:443 is not allowed") as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        with pytest.raises(ModelFailed, match=r"answered 403 egress to models.example:443 is not") as failed:
            await ask("https://models.example/v1")
    assert failed.value.status_code is None


async def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "127.0.0.1:1")
    with pytest.raises(ModelFailed, match=r"the proxy http://127.0.0.1:1 cannot be reached: .*refused"):
        await ask("https://models.example/v1")


async def test_a_proxy_for_plain_http_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with pytest.raises(ModelFailed, match=r"cannot connect to http://127.0.0.1:1: .* comes from HTTP_PROXY"):
        await ask("http://models.example/v1")


async def test_a_host_that_no_proxy_names_is_reached_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with model({"content": "hello"}) as server:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", "models.example,0.0.0.0")
        assert await ask(server.url.replace("127.0.0.1", "0.0.0.0")) == "hello"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_this_machine_is_reached_without_a_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with model({"content": "hello"}) as server:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        assert await ask(server.url.replace("127.0.0.1", host)) == "hello"


@pytest.mark.parametrize("proxy", ["socks5://me:sk-secret@127.0.0.1", "https://me:sk-secret@127.0.0.1", "http://"])
def test_a_proxy_that_cannot_be_used_is_refused_and_not_shown(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(AEnvError, match="HTTP_PROXY must be the address of an HTTP proxy") as refused:
        Chat("http://models.example/v1")
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        f"localhost/{KEY}",
        f"file:///{KEY}",
        f"http://me:{KEY}@localhost/v1",
        f"http://localhost:{KEY}/v1",
        f"http://localhost/v1?key={KEY}",
        f"http://localhost/{KEY} v1",
        f"http:///{KEY}",
        f"http://[::1/{KEY}",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(AEnvError, match="must be an http or https address such as") as refused:
        Chat(url)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("key", [f"{KEY}\nx", f"{KEY}\u201d"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(AEnvError, match="must be printable ASCII") as refused:
        Chat("http://localhost/v1", key)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    "reply",
    [
        (401, f"the key {KEY} is bad"),
        (200, f"<html>{KEY}</html>"),
        (200, f'{{"choices": [{{"message": "{KEY}"}}]}}'),
        (400, "x" * 295 + KEY),  # what is shown ends within it
    ],
)
async def test_a_key_that_a_server_repeats_is_left_out_of_the_error(reply: Reply) -> None:
    async with model(reply) as server:
        with pytest.raises(ModelFailed) as failed:
            await ask(server.url)
    assert "sk-" not in f"{failed.value}{failed.value.said}{failed.value.reason}"
    assert failed.value.said


async def test_the_reason_leaves_out_what_the_server_said() -> None:
    async with model((400, "you wrote: a secret scenario")) as server:
        with pytest.raises(ModelFailed, match="a secret scenario") as failed:
            await ask(server.url)
    assert failed.value.reason == "the model's server answered 400"
    assert (failed.value.status_code, failed.value.is_passing) == (400, False)


async def test_a_redirect_is_not_followed() -> None:
    async with model((307, ""), {"content": "hello"}) as server:
        with pytest.raises(ModelFailed, match="answered 307"):
            await ask(server.url)
    assert len(server.asked) == 1


async def test_an_answer_that_is_too_large_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chats, "_MAX_ANSWER_BYTES", 1000)  # the real limit would take a while to send
    async with model({"content": "x" * 2000}) as server:
        with pytest.raises(ModelFailed, match="larger than 1000 bytes"):
            await ask(server.url)


async def test_a_server_that_does_not_answer_is_given_up_after_the_timeout() -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()  # until the client hangs up
        except ConnectionError:
            pass
        finally:
            writer.close()

    silent = await asyncio.start_server(listen, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    async with silent, Chat(url, timeout=0.01, attempts=1) as chat:
        with pytest.raises(ModelFailed, match=r"did not answer within 0.01 s"):
            await chat.complete({})
