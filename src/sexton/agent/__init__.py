"""What runs on a Kubernetes node beside the recorder: it reports the verdict to the API server."""

#: The type of the condition on the Node.
CONDITION = "SextonHealthy"
