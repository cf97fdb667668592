"""The gateway: the HTTP API for instances, and the data path to them. `app.serve` runs it."""
