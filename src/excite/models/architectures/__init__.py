"""The networks that excite builds itself."""
