"""A data owner's page: the ledger on this machine as a person can read it, on loopback, for whoever has its address."""
