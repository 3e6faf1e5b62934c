"""The commands for users of a cell: submitting, looking, cancelling. Those of the rooms are in the rooms."""
