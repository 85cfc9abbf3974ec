"""The nouns: task, run, attempt, worker, queue, event. Frozen values that know nothing of storage or time."""
