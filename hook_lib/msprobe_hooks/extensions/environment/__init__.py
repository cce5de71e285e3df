"""What a training was started with: settings, versions, seeds, first batches and weights, as a file per rank."""
