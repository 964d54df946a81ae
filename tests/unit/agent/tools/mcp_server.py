"""An MCP server for tests; a program when it is run."""

from __future__ import annotations

import logging
import sys
import time

from mcp.server.mcpserver import Context, Image, MCPServer


def make(name: str = "shop") -> MCPServer:
    server = MCPServer(name, log_level="ERROR")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(name="odd name.v1", description="A name that no provider takes.")
    def odd() -> str:
        return "odd"

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ValueError("out of stock")

    @server.tool()
    def picture() -> Image:
        """Draw."""
        return Image(data=b"\x89PNG", format="png")

    @server.tool()
    def slow(seconds: float) -> str:
        """Wait."""
        time.sleep(seconds)
        return "late"

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Offer another tool from now on, and say so."""

        def grown(x: int) -> int:
            """Have grown."""
            return x

        server.add_tool(grown)
        await ctx.notify_tools_changed()
        return "grown"

    return server


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    if len(sys.argv) > 1:
        time.sleep(float(sys.argv[1]))
    make().run()
