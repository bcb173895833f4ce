"""`gateway schema`: what an editor needs to help with a configuration."""

from __future__ import annotations

import argparse
import json

from gateway import config

HELP = """\
Print the JSON Schema of the configuration.

Example:
  gateway schema > gateway.schema.json

and as the first line of a configuration, for editors with yaml-language-server:
  # yaml-language-server: $schema=gateway.schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None: ...


def run(args: argparse.Namespace) -> int:
    print(json.dumps(config.json_schema(), indent=2))
    return 0
