"""The pages of tasks: the list, one task in its parts, the form, what is done to one and to many."""
