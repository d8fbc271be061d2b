"""Facts in, facts kept: events, intake, log, drain, store, feedback, keys, importers."""
