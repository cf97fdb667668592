"""What hub and gateway have in common as HTTP servers: sockets, envelope, routes, accounts, metrics."""
