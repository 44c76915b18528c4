"""The command line: one file a command in `commands/`, one file a recipe in `recipes/`."""
