"""Prints the document of a server with the embedded model and default limits: docs/openapi.json."""

import json
import sys

from ostraka_gateway.limits import DEFAULT_LIMITS
from ostraka_gateway.openapi.document import describe

if __name__ == "__main__":
    document = describe("ostraka-135m", DEFAULT_LIMITS)
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
