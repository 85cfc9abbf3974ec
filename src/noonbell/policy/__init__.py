"""The decisions: what becomes of a slot, of a failed attempt, of a wish to start. Pure functions, frozen answers.

`account` puts misfire, overlap, failure and concurrency together for the due slots of one task.
"""
