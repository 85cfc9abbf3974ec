"""Schedulers with a durable store, one module each, as `bench.faults` kills them. They import nothing of Noonbell."""
