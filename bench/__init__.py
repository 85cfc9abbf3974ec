"""Noonbell measured beside its peers and the bare database drivers, all in one run. See `docs/reference/bench.md`."""
