"""Who sees what (pure), and what it did (moments from the store, pure statistics after)."""
