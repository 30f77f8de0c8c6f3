"""The Grafana boards as code: `make dashboards` writes their JSON."""
