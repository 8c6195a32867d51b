"""Components that several views use."""
