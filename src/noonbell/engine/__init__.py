"""Verbs, in the order of the flow: plan, claim, execute, settle, sweep, publish. Each loop is `tick; wait`."""
