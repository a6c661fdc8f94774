"""Charts, tables, figures for papers, and the HTML page of a run, a grid or a federation, saved or live."""
