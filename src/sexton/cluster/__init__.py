"""The connection to a Kubernetes API server: credentials, requests, pauses after failures."""
