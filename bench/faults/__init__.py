"""Schedulers whose processes are killed, Noonbell among them: what is lost, doubled and late, by a target's own log.

`account` judges the log, `target` writes it, `processes` and `timeline` kill, `contenders` names who takes part and how, `page` writes
the table. `python -m bench.faults` runs it.
"""
