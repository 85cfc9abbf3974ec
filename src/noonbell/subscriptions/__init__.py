"""Webhook subscriptions: what API and pages do with them, and the loop that delivers events to their receivers."""
