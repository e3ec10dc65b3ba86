"""`python -m tokenmill_trainer`, and so `torchrun … -m tokenmill_trainer run …`."""

from tokenmill_trainer.cli import main

if __name__ == "__main__":
    main()
