"""The ledger of whole tasks: which calls belong to which task, and where their time went."""
