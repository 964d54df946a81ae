"""Names what took lost tokens, and how sure that is."""
