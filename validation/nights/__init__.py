"""Windows of nightly series, real and simulated, with changes at known places."""
