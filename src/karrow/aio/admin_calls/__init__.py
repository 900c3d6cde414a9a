"""Admin's own calls, one file for each noun; those it shares with the Client are in ``calls``."""
