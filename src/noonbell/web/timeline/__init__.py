"""The timeline: past and future on one axis, as bars, a table, a load, a month; and filling in what is missing."""
