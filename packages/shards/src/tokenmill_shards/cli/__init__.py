"""The package's commands of `prep`."""
