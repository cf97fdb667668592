"""A fuzzer of everything that an instance can send: replies, history, its ready line, its log, messages at boot.

    .venv/bin/python -m tests.fuzz reply --seconds 60        # fresh seeds of one kind
    .venv/bin/python -m tests.fuzz reply --seed 4711         # one seed again

A real gateway has two tenants. One runs a hostile environment: what it sends is made from a seed (`generators.py`,
which runs inside, in `environment.py`). After each seed the other tenant's instance must answer its call, byte for
byte, on the same connection where that is still open; the gateway must be the same process, answer `/health`, and
keep its memory and its descriptors (`playing.py`). A seed that found something is kept in `corpus/<kind>.txt`, and
is played first from then on.

A further kind is a function in `generators.KINDS`, what plays it in `playing.PLAYS`, and a file in `corpus/`.
`boot` is what an author's code that is loaded ahead (`preload`) writes to the processes that start instances.
"""
