"""Files: written whole or not at all, locked, fetched and unpacked."""
