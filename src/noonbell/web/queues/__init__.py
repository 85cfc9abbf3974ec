"""The pages of queues: all of them, one of them, what is done to it, how fast it goes."""
