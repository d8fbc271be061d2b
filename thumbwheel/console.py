"""The console's one page: what is running and what it says. The key stays in the browser."""

from importlib.resources import files

CONSOLE = (files("thumbwheel") / "console.html").read_text()
