"""The environment centre: its pages in `static/`, which are built from `web/`, and the server of `aenv view`."""
