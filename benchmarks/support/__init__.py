"""What benchmarks, the comparison and the experiments share: reports, processes, figures, the commands."""
