"""python -m burn_kernels."""

from burn_kernels.autotune.command import main

raise SystemExit(main())
