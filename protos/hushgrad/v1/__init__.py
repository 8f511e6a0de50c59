"""Generated stubs of the contract, version 1. Made by protos/generate.py; do not edit."""
