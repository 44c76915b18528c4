"""Plans at sizes that change from call to call."""
