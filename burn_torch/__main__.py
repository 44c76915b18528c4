"""`python -m burn_torch` is `burn-torch`."""

import sys

from burn_torch.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
