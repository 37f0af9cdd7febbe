"""Sends the figures of a run to where others are watched: Prometheus's Pushgateway, Amazon CloudWatch."""
