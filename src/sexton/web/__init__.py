"""The web server that the explorer and the exporter share: sockets, limits, TLS, access control."""
