"""Reports as Continue 1.x makes them (schema 0.2.0), for tests."""

from typing import Any

BASE = {
    "timestamp": "2026-06-18T17:21:52.123Z",
    "userId": "",
    "userAgent": "Visual Studio Code/1.139.1 (Continue/1.3.38)",
    "selectedProfileId": "local",
    "schema": "0.2.0",
}
MODEL = {"modelProvider": "anthropic", "modelName": "claude-x", "modelTitle": "Claude"}
SESSION = "0b7d8f7e-3f0f-4e53-9b8a-0d6c1b8a2c11"
CHAT = MODEL | {"prompt": "<user>\nhush it\n", "completion": "hush 🤫", "sessionId": SESSION}
EDIT = MODEL | {
    "prompt": "hush: rename", "completion": "hush b", "previousCode": "hush a", "newCode": "hush b",
    "previousCodeLines": 1, "newCodeLines": 1, "lineChange": 0, "accepted": True,
    "filepath": "file:///work/a.py",
}  # fmt: skip
AUTOCOMPLETE = {
    "disable": False, "useFileSuffix": True, "maxPromptTokens": 1024, "debounceDelay": 350,
    "maxSuffixPercentage": 0.2, "prefixPercentage": 0.3, "multilineCompletions": "auto",
    "slidingWindowPrefixPercentage": 0.75, "slidingWindowSize": 500, "useCache": True,
    "onlyMyCode": True, "useRecentlyEdited": True, "accepted": True, "time": 412,
    "prefix": "hush(", "suffix": ")", "prompt": "<PRE>hush(<SUF>)", "completion": "x, y",
    "modelProvider": "ollama", "modelName": "qwen", "cacheHit": False,
    "filepath": "file:///work/a.py", "gitRepo": "git@host:hush/r.git",
    "completionId": "1f0e", "uniqueId": "machine",
}  # fmt: skip
NEXT_EDIT = {
    "elapsed": 900, "completionOptions": {"stop": ["hush"]}, "completionId": "2f0e",
    "uniqueId": "machine", "timestamp": 1781803312123, "fileUri": "file:///hush/a.py",
    "workspaceDirUri": "file:///hush", "prompt": "hush", "userEdits": "hush", "userExcerpts": "",
    "originalEditableRange": "hush", "completion": "hush!", "accepted": False, "aborted": True,
    "cursorPosition": {"line": 1, "character": 2}, "modelProvider": "mercury", "modelName": "m",
}  # fmt: skip
TOOL = {
    "toolCallId": "0", "functionName": "read_file", "functionParams": {"type": "object"},
    "toolCallArgs": '{"path": "hush"}', "accepted": True, "succeeded": True,
    "output": [{"content": "hush"}],
}  # fmt: skip
TOKENS = {"model": "qwen", "provider": "ollama", "promptTokens": 812, "generatedTokens": 33}
WRITTEN = {
    "autocomplete": ("prefix", "suffix", "prompt", "completion"),
    "chatFeedback": ("prompt", "completion"),
    "chatInteraction": ("prompt", "completion"),
    "editInteraction": ("prompt", "completion"),
    "editOutcome": ("prompt", "completion", "previousCode", "newCode"),
    "nextEditOutcome": (
        "fileUri", "workspaceDirUri", "prompt", "userEdits", "userExcerpts",
        "originalEditableRange", "completion",
    ),
    "toolUsage": ("functionParams", "toolCallArgs", "output"),
}  # fmt: skip
"""What Continue itself leaves out at level noCode."""
REPORTS: dict[str, dict[str, Any]] = {
    "autocomplete": AUTOCOMPLETE,
    "chatFeedback": CHAT | {"feedback": True},
    "chatInteraction": CHAT | {"tools": ["read_file"], "rules": [{"id": "hush.md"}]},
    "editInteraction": MODEL | {name: EDIT[name] for name in ("prompt", "completion", "filepath")},
    "editOutcome": EDIT,
    "nextEditOutcome": NEXT_EDIT,
    "tokensGenerated": TOKENS,
    "toolUsage": TOOL,
    "quickEdit": {"prompt": "hush", "label": "hush", "diffs": [{"type": "new", "line": "hush"}]},
    "aNewOne": {"text": "hush", "size": 3, "nested": {"text": "hush"}},
}


def line(name: str, **changes: Any) -> dict[str, Any]:
    """As in a file."""
    return BASE | {"eventName": name} | REPORTS[name] | changes


def posted(name: str, *, level: str = "all", **changes: Any) -> dict[str, Any]:
    """As sent to a destination."""
    data = line(name, **changes)
    if level != "all":
        data = {field: value for field, value in data.items() if field not in WRITTEN.get(name, ())}
    return {"name": name, "data": data, "schema": "0.2.0", "level": level, "profileId": "local"}
