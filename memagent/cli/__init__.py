"""The command line: `app` holds the commands, one module each does the work of the longer ones."""
