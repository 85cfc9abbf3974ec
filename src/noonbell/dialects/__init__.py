"""Other systems' words over the same services: plans (document 004), jobs (document 003)."""
