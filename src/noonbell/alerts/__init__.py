"""Alerts: the rules that raise them, the channels that send them, and the loop that does both."""
