"""The pages of runs: the list, one run from its plan to its end, two side by side, what is done to one and to many."""
