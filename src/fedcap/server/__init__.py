"""The server of a federation: rounds, uploads, the client index, removal, save and restore."""
