"""The command line. Modules here import inside functions, so that `neurotest --help` stays quick."""
