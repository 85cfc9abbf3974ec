"""The activity page: what people did, and what the system noticed."""
