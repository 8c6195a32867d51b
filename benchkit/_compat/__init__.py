"""Uses of private names of other libraries, one module per library."""
