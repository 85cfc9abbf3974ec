"""How runs are carried out: an HTTP call, or a job handler."""
