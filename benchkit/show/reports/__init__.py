"""Write reports of runs, experiments, bisections and nights."""
