"""The front door: parses, composes the rooms, prints."""
