"""Lines of transcripts, as small as they can be."""

from __future__ import annotations

import json


def line(message_id: str, output: int, second: int = 0) -> str:
    """Return one line of one Claude Code response."""
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
    }
    message = {"model": "claude-opus-5-5", "id": message_id, "content": [], "usage": usage}
    return json.dumps(
        {
            "sessionId": "s",
            "message": message,
            "requestId": f"r{message_id}",
            "type": "assistant",
            "uuid": message_id,
            "timestamp": f"2026-11-01T00:00:{second:02d}.000Z",
        }
    )
