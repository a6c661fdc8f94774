"""The server: rounds, validation of uploads, the client index, removal, save and restore."""
