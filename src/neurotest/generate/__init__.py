"""Making tests: generators that turn seeds into mutants."""
