"""Names of pods and containers. A source that is added (the runtime's socket, the kubelet's read
API) gives the same two tables, `sexton.model.rows.kubernetes`."""
