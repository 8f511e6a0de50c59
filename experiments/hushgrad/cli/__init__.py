"""The `hushgrad` command: one module per verb; what a verb needs is imported when it is called."""
