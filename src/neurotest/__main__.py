"""`python -m neurotest`."""

from neurotest.cli.app import main

main()
