"""What stands behind a member of a group: who gets which partition."""
