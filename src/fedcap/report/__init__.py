"""Tables and figures, drawn from the records of runs alone."""
