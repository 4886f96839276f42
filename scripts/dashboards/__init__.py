"""Grafana's dashboards as code: described here, written to ``deploy/grafana/dashboards`` as JSON for Grafana.

``python -m scripts.dashboards write`` makes the files, and a test compares them. ``python -m scripts.dashboards draw``
asks a running Prometheus what every panel asks and draws the answers, for those who want to see what they get before
they have it.
"""
