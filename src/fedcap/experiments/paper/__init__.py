"""The paper's tables and figures: which runs they need, what the paper prints, and the two side by side."""
