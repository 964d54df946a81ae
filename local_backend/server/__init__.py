"""The engine behind the wire formats of hosted services, with their cache rules in front."""
