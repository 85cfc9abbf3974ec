"""The demo: a dozen sample tasks (`tasks.yaml`), a week of their history, and the targets that they call."""
