"""What a hostile instance sends, made from a seed. Pure: runs inside an instance, and needs nothing but Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Step = tuple[str, Any]
"""("send", bytes), ("repeat", (bytes, times)), ("rights", count), an end of the connection as ("reset", None);
or, for a log, (what becomes of the file, argument)."""

FORGED = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 8\r\n\r\n"forged"'
_PIECE = bytes(range(256)) * 256
_STATUSES = (
    *(b"HTTP/1.1 200 OK",) * 12,
    *(b"HTTP/1.1 204 No Content", b"HTTP/1.1 304 Not Modified", b"HTTP/1.1 205 Reset Content"),
    *(b"HTTP/1.1 100 Continue", b"HTTP/1.1 101 Switching Protocols", b"HTTP/1.1 103 Early Hints"),
    *(
        b"HTTP/1.0 200 OK",
        b"HTTP/0.9 200 OK",
        b"HTTP/2 200",
        b"HTTP/9.9 200 OK",
        b"http/1.1 200 ok",
        b"ICY 200 OK",
    ),
    *(b"HTTP/1.1 200", b"HTTP/1.1 ", b"HTTP/1.1 -200 OK", b"HTTP/1.1 99999999999999999999 OK", b"HTTP/1.1 000 OK"),
    *(b"HTTP/1.1 600 X", b"HTTP/1.1 999 X", b"HTTP/1.1 200 " + b"R" * 70_000, b"HTTP/1.1 200 \0\r\r", b""),
    *(b"HTTP/1.1 301 Moved", b"HTTP/1.1 401 Unauthorized", b"HTTP/1.1 503 Unavailable", b"HTTP/1.1 500 X"),
)
_LENGTHS = (
    *(
        b"-1",
        b"+5",
        b"0x5",
        b" 5 ",
        b"5,5",
        b"5, 6",
        b"5;",
        b"",
        b"abc",
        b"1e3",
        b"\xb2",
        b"5\x0b",
        b"00000000005",
    ),
    *(b"99999999999999999999", b"18446744073709551616", b"9223372036854775807", b"4294967296", b"1000000"),
)
_CODINGS = (
    *(b"chunked",) * 4,
    *(
        b"Chunked",
        b"gzip, chunked",
        b"chunked, gzip",
        b"chunked, chunked",
        b"identity",
        b"xchunked",
        b"chunked\x0b",
    ),
    *(b" chunked", b"chunked;q=1", b"", b"\0chunked", b"gzip"),
)
_OTHERS = (
    *(b"connection: close", b"connection: keep-alive", b"connection: upgrade", b"connection: content-length"),
    *(b"upgrade: websocket", b"keep-alive: timeout=1, max=0", b"proxy-authenticate: Basic", b"te: trailers"),
    *(
        b"trailer: content-length",
        b"set-cookie: session=forged; domain=.localhost",
        b"location: http://127.0.0.1:1/",
    ),
    *(b"content-type: text/event-stream", b"content-type: application/json", b"content-encoding: gzip"),
    *(b"access-control-allow-origin: *", b"strict-transport-security: max-age=1", b'clear-site-data: "*"'),
    *(b"AEnvCore-EnvInstance-ID: forged", b"authorization: Bearer forged", b"x-forwarded-for: forged"),
    *(
        b"no colon here",
        b": no name",
        b" folded: value",
        b"x : space before",
        b"x:\0nul",
        b"\0x: nul",
        b"x: a\rb: c",
    ),
    *(b"x: a\nb: c", b"x: \xff\xfe", b"\xc3\xa9: name", b"x" * 70_000 + b": long", b"x: " + b"v" * 70_000),
)
_SIZES = (
    b"0",
    b"-1",
    b"+5",
    b"0x5",
    b"g",
    b"",
    b" 5",
    b"5 ",
    b"5;" + b"e" * 70_000,
    b"f" * 17,
    b"7fffffffffffffff",
)


def reply(random: Random) -> list[Step]:
    """What is sent as the answer to a request."""
    steps: list[Step] = []
    for _ in range(random.choice((0, 0, 0, 0, 1, 3, 200))):
        steps.append(("send", b"HTTP/1.1 100 Continue\r\n\r\n"))
    raw = _head(random)
    raw += _body(random, raw)
    if random.random() < 0.15:
        raw += FORGED * random.choice((1, 1, 50))
    if random.random() < 0.4:
        raw = mutated(random, raw)
    cuts = sorted(random.sample(range(len(raw) + 1), min(len(raw), random.choice((0, 0, 1, 5)))))
    for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        steps.append(("send", raw[begin:end]))
    if random.random() < 0.05:
        steps.append(("repeat", (_piece(random), random.choice((10, 200)))))
    steps.append((random.choice(("close", "close", "keep", "keep", "half-close", "reset", "hold")), None))
    return steps


def history(random: Random) -> list[Step]:
    """The runtime's answer when the gateway asks for the last calls: mostly well-formed, with wrong contents."""
    if random.random() < 0.3:
        return reply(random)
    call = {
        "kind": "tool",
        "name": "echo",
        "arguments": {},
        "started_at": "2025-01-01T00:00:00Z",
        "duration_ms": 1,
    }
    whole: Any = {"success": True, "data": {"calls": [call] * random.choice((0, 1, 3, 1000))}}
    raw = jsonish(random, _replaced(random, whole))
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
    return [("send", head.encode() + raw), ("keep", None)]


def ready(random: Random) -> list[Step]:
    """What is written to the channels that are open while the environment is loaded."""
    tool = {"name": "say", "description": "", "inputSchema": {"type": "object", "properties": {}}}
    line: Any = {"ready": True, "tools": [tool] * random.choice((0, 1, 2, 300))}
    if random.random() < 0.2:
        line = {"ready": False, "error": _value(random)}
    steps: list[Step] = []
    for _ in range(random.choice((1, 1, 1, 2, 20))):
        raw = jsonish(random, _replaced(random, line))
        raw = mutated(random, raw) if random.random() < 0.3 else raw
        steps.append(("send", raw + random.choice((b"\n", b"\n", b"\n", b"", b"\r\n", b"\n\n", b"\0\n"))))
    if random.random() < 0.2:
        steps.append(("rights", random.choice((1, 3, 250))))
    if random.random() < 0.1:
        steps.append(("repeat", (_piece(random).replace(b"\n", b""), random.choice((10, 100)))))
    steps.append((random.choice(("go on", "go on", "go on", "close", "half-close", "exit", "raise")), None))
    return steps


def log(random: Random) -> list[Step]:
    """What becomes of the file that the gateway reads as the log."""
    texts = (
        _piece(random),
        b"\x1b]0;title\x07\x1b[2J\r\x08\x00" * 50,
        b"x" * (3 << 20),
        b"\n" * 100_000,
        b"data: x\n\nevent: exit\ndata: {}\n\n" * 100,
        b"\xff\xfe\xed\xa0\x80" * 1000,
        "\u2028\u2029\x85\x0b\x0c".encode() * 1000,
    )
    places = (
        "/proc/self/environ",
        "/proc/1/mem",
        "/dev/zero",
        "/etc/passwd",
        "/",
        ".",
        "instance.log",
        "/dev/tty",
    )
    steps: list[Step] = [("append", random.choice(texts)) for _ in range(random.choice((1, 1, 3)))]
    change: Step = random.choice(
        (
            *(("append", random.choice(texts)),) * 3,
            ("link", random.choice(places)),
            ("folder link", random.choice(("/", "/proc", "/dev", "/proc/self/fd"))),
            *(("fifo", None), ("socket", None), ("folder", None), ("gone", None), ("closed", None)),
            ("truncate", random.choice((0, 1, 1 << 24, 1 << 40))),
            *(("swap", None), ("swap", None)),
        )
    )
    return [*steps, change]


def boot(random: Random) -> list[Step]:
    """What code that is loaded ahead writes to the processes that start instances, each "send" one packet."""
    due = [{"is": "Loaded", "is_loaded": random.random() < 0.5}, {"is": "Waiting"}, {"is": "Waiting"}]
    steps: list[Step] = [("send", json.dumps(one).encode()) for one in due[: random.randrange(4)]]
    for _ in range(random.choice((0, 1, 3, 10, 200))):
        name = random.choice(sorted(_MESSAGES))
        fields = _MESSAGES[name] if random.random() < 0.7 else random.sample(sorted(_FIELDS), 2)
        message: Any = {"is": name}
        for field in fields:
            message[field] = _FIELDS[field] if random.random() < 0.8 else _value(random)
        if random.random() < 0.1:
            message = _replaced(random, {"started": True, "ready": True, **message})
        raw = jsonish(random, message)
        raw = mutated(random, raw) if random.random() < 0.1 else raw
        steps.append(("send", raw[: random.choice((1 << 16, 1 << 20))] + random.choice((b"", b"", b"\n"))))
        if random.random() < 0.2:
            steps.append((random.choice(("rights", "receive")), random.choice((1, 3, 250))))
    if random.random() < 0.3:
        steps.append(("later", None))
    steps.append((random.choice(("go on", "go on", "go on", "half-close", "exit", "raise")), None))
    return steps


# What is told when an instance is started, by any of the processes that take part, with its fields.
_MESSAGES: dict[str, tuple[str, ...]] = {
    "Loaded": ("is_loaded",),
    "NotLoaded": ("error",),
    "Waiting": (),
    "Ended": ("number", "status"),
    "NotForked": ("number", "error", "code"),
    "Prepared": ("number", "listeners"),
    "Started": ("is_loaded",),
    "NotStarted": ("error",),
    "Launched": ("owner",),
    "Make": ("number",),
    "Go": (),
    "__class__": (),
}
_FIELDS: dict[str, Any] = {
    "owner": 0,
    "error": "x",
    "code": 11,
    "is_loaded": True,
    "number": 1,
    "listeners": ["egress"],
    "status": 9,
    "started": True,
}

KINDS: dict[str, Callable[[Random], list[Step]]] = {
    "reply": reply,
    "history": history,
    "ready": ready,
    "log": log,
    "boot": boot,
}


def steps(kind: str, seed: int) -> list[Step]:
    """The same for the same seed, here and inside."""
    return KINDS[kind](Random(f"{kind} {seed}"))


def mutated(random: Random, raw: bytes) -> bytes:
    """Bytes changed, lost, doubled, put in."""
    changed = bytearray(raw)
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(len(changed) + 1)
        how = random.randrange(5)
        if how == 0 and at < len(changed):
            changed[at] ^= 1 << random.randrange(8)
        elif how == 1:
            del changed[at : at + random.choice((1, 2, 10))]
        elif how == 2:
            changed[at:at] = changed[at : at + random.choice((1, 10, 100))]
        elif how == 3:
            changed[at:at] = random.choice(
                (b"\0", b"\r\n", b"\n", b"\r\n\r\n", b"\xff", b"HTTP/1.1 200 OK\r\n\r\n")
            )
        else:
            del changed[at:]
    return bytes(changed)


def jsonish(random: Random, value: Any) -> bytes:
    """JSON, or what some parsers take for it."""
    text = json.dumps(value, ensure_ascii=random.random() < 0.5)
    if random.random() < 0.1:
        text = text.replace("{", '{"ready": true, "ready": false, "data": {}, ', 1)
    if random.random() < 0.05:
        text = "[" * 100_000 + text
    return text.encode("utf-8", "surrogatepass")


def _head(random: Random) -> bytes:
    lines = [random.choice(_STATUSES)]
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        length = str(random.choice((0, 5, 20, 100_000))).encode()
        lines.append(b"content-length: " + random.choice((length, length, length, random.choice(_LENGTHS))))
    for _ in range(random.choice((0, 0, 1, 2))):
        lines.append(b"transfer-encoding: " + random.choice(_CODINGS))
    for _ in range(random.choice((0, 1, 2, 4))):
        lines.append(random.choice(_OTHERS))
    if random.random() < 0.02:
        lines += [b"x: y"] * 30_000
    first, *rest = lines
    random.shuffle(rest)
    end = random.choice((b"\r\n",) * 8 + (b"\n", b"\r"))
    return end.join([first, *rest, b"", b""])


def _body(random: Random, head: bytes) -> bytes:
    if b"chunked" not in head.lower() or random.random() < 0.2:
        return _piece(random)[: random.choice((0, 4, 5, 6, 20, 21, 65536))]
    chunks = []
    for _ in range(random.choice((0, 1, 2, 10))):
        data = _piece(random)[: random.choice((1, 5, 300))]
        size = random.choice(_SIZES) if random.random() < 0.15 else b"%x" % len(data)
        chunks.append(size + b"\r\n" + data + random.choice((b"\r\n",) * 8 + (b"\n", b"", b"\r\nx")))
    last = random.choice(
        (b"0\r\n\r\n",) * 5 + (b"", b"0\r\n", b"0\r\ncontent-length: 5\r\n\r\n", b"00000\r\n\r\n")
    )
    return b"".join(chunks) + last


def _piece(random: Random) -> bytes:
    shift = random.randrange(256)
    return random.choice((_PIECE[shift:], b"data: x\n\n" * 500, b'{"success": true, "data": 1}', b"", FORGED))


def _value(random: Random) -> Any:
    """Anything that JSON can say, and what Python's JSON says besides."""
    return random.choice(
        (
            *(None, True, 0, -1, 1 << 70, 1e308, float("nan"), float("inf"), "", "\0", "\ud800", "x" * 100_000),
            *(
                [],
                {},
                [[]],
                {"": None},
                {"__proto__": 1},
                ["x"] * 1000,
                "\x1b[2J",
                "../../x",
                "<script>",
                "é" * 50,
            ),
            _nested(random.choice((10, 900))),
        )
    )


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"properties": value}
    return value


def _replaced(random: Random, value: Any) -> Any:
    """A copy in which some parts are something else."""
    if random.random() < 0.12:
        return _value(random)
    if isinstance(value, dict):
        made = {key: _replaced(random, part) for key, part in value.items()}
        if made and random.random() < 0.05:
            del made[random.choice(sorted(made))]
        return made
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_replaced(random, part) for part in value[:3]] + list(value[3:])
    return value
