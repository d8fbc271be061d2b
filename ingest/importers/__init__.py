"""Histories of other agents, read into facts."""
