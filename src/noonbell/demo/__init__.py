"""The demo: a dozen sample tasks, a week of their history, and the targets that they call.

tasks     what they are, and how each behaves at a slot: one pure function, so past and present go on alike
history   the week before, lived through by the store's own transitions on a clock that is moved by hand
targets   what answers their calls while the demo runs
showing   all of it together: fill, serve, clean up
"""
