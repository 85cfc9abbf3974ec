"""Where what happened is told: numbers for Prometheus, lines for the log."""
