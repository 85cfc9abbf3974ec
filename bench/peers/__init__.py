"""One module per peer. Each runs as its own process in the peers' environment and imports nothing of Noonbell."""
