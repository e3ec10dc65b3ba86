"""Token files that other tools wrote, as tokens datasets: `prep import-tokens`."""
