"""What hushgrad costs, measured beside a yardstick in the same run. Run by `make bench`."""
