"""Networks and data that studies, benchmarks and tests use: `weights` and `data`."""
