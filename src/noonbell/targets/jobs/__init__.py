"""Job handlers: what a run of a JOB task is carried out by, in this process or in one of its own."""
