"""Run workloads in environments: kernels, plans, ad hoc recordings."""
