"""Commands: programs of the worker's own machine, where a file of the worker's allows them."""
