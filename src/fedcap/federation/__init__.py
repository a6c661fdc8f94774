"""The methods on a real federation: an operator's server, and sites whose data stay where they are."""
