"""What the three loops are told on the command line."""

import argparse


def parse(description: str) -> argparse.Namespace:
    """Returns config, participant, state and data."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="client.toml, as `hushgrad new` wrote it")
    parser.add_argument("--participant", required=True)
    parser.add_argument("--state", required=True, help="folder of the ledger that `hushgrad-client ledger init` made")
    parser.add_argument("--data", required=True, help="this participant's records")
    return parser.parse_args()
