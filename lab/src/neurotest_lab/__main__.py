"""`python -m neurotest_lab study nss` is `neurotest study nss`."""

from neurotest.cli.app import main

main()
