"""Listening where another process is: a listener in its network, handed to the engine.

    python -m aenv.isolation.sandbox.listen CHANNEL PROCESS PORT

CHANNEL (a unix socket) and PROCESS (a pidfd) are descriptors. On the channel comes "0" with the listener, or the
number of the error. It ends then, and so keeps no copy.
"""

from __future__ import annotations

import os
import socket
import sys

from . import namespaces

_QUEUE = 128


def main() -> None:
    channel, process, port = map(int, sys.argv[1:4])
    with socket.socket(fileno=channel) as answers:
        try:
            namespaces.enter(process, "network")
            os.close(process)
            with _listener(port) as listener:
                socket.send_fds(answers, [b"0"], [listener.fileno()])
        except OSError as error:
            answers.send(str(error.errno).encode())


def _listener(port: int) -> socket.socket:
    listener = socket.socket()
    # What is left of connections to the one before must not keep the port.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(_QUEUE)
    return listener


if __name__ == "__main__":
    main()
