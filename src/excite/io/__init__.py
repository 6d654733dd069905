"""Files: atomic writes, locks, downloads and archives."""
