"""Writes a history the way aider's own `io.py` does; an independent source of what was said."""

from dataclasses import dataclass, field


@dataclass
class Aider:
    text: str = ""
    prompts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def starts(self, at: str = "2024-08-05 19:33:32", *said: str) -> "Aider":
        self.text += f"\n# aider chat started at {at}\n\n"
        for line in said or ("aider a.py", "Aider v0.48.1"):
            self.says(line)
        return self

    def is_asked(self, prompt: str) -> "Aider":
        self.text += "\n" + "  \n".join(f"#### {line}" for line in prompt.split("\n")) + "  \n"
        self.prompts.append(prompt)
        return self

    def says(self, text: str) -> "Aider":
        """One message; its marks stand on its first and last line only."""
        self.text += f"> {text}  \n"
        return self

    def answers_with(self, text: str, *, tokens: str = "1,204 sent, 80 received.") -> "Aider":
        self.text += f"\n{text.strip()}\n\n"
        self.answers.append(text.strip())
        if tokens:
            self.says(f"Tokens: {tokens} Cost: $0.02 request, $0.05 session.")
        return self

    def applies(self, path: str, sha: str, message: str = "fix: it") -> "Aider":
        return self.says(f"Applied edit to {path}").says(f"Commit {sha} {message}")


def edit(path: str, before: str, after: str) -> str:
    body = f"<<<<<<< SEARCH\n{before}=======\n{after}>>>>>>> REPLACE"
    return f"{path}\n```python\n{body}\n```"
