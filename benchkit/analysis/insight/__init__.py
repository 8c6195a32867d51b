"""What bounds a run, what a change would bring, and what to change."""
