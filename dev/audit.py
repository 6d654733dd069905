"""Ask for known faults in what is locked: pip-audit over locks/, where a service can be asked (`make audit`).

Exit codes: 0, no fault is known; 1, there are some, and they are printed; 3, nobody could be asked: nothing is known.

pip-audit takes a 404 for a package that a service does not know and passes over it: behind a mirror without advisories
it would find no fault in anything. So a service is asked for something that it must know before it is believed.
"""

import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

LOCKS = Path(__file__).resolve().parents[1] / "locks"
FILES = ("dev", "cuda", "tools")  # dev has serve and demo in it; the build of torch for CPUs is torch
SERVICES = {  # as pip-audit calls them, and an address of each where something must be, with a word of what is there
    "pypi": ("https://pypi.org/pypi/jinja2/2.4.1/json", b"vulnerabilities"),
    "osv": ("https://api.osv.dev/v1/vulns/GHSA-462w-v97r-4m45", b"jinja2"),
}
NOBODY = 3


def main() -> int:
    """Ask the first service that answers."""
    refusals = {service: why_not(*known) for service, known in SERVICES.items()}
    for service, reason in refusals.items():
        if not reason:
            given = [part for name in FILES for part in ("--requirement", str(LOCKS / f"{name}.txt"))]
            command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service, "--strict"]
            return subprocess.run([*command, "--require-hashes", "--disable-pip", *given], check=False).returncode  # noqa: S603
    told = "; ".join(f"{service} ({reason})" for service, reason in refusals.items())
    print(f"audit: nobody could be asked, so nothing is known: {told}", file=sys.stderr)
    return NOBODY


def why_not(address: str, word: bytes) -> str:
    """Why a service cannot be believed: it does not answer, or without this word of what must be there."""
    try:
        with urlopen(address, timeout=20) as answer:  # noqa: S310 - the addresses are ours
            return "" if word in answer.read() else "it answers with something else"
    except (URLError, TimeoutError) as error:
        return str(getattr(error, "reason", None) or error)


if __name__ == "__main__":
    sys.exit(main())
