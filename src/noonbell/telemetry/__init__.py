"""Telemetry: metrics for Prometheus, lines for the log, spans for OpenTelemetry."""
