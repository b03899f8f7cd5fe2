import base64
import hashlib
import hmac
import time


def is_signed(headers, body: bytes, secrets, tolerance=300) -> bool:
    """Whether a webhook comes from who knows one of these secrets (`whsec_...`), and is at most five minutes old.

    `headers` finds names in lower case, as those of Flask and Django do. `body` is what arrived, byte for byte:
    `request.get_data()` or `request.body`, before anything parses it.
    """
    sent, timestamp, signatures = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (timestamp.isascii() and timestamp.isdigit()) or abs(time.time() - int(timestamp)) > tolerance:
        return False
    signed = f"{sent}.{timestamp}.".encode() + body
    for secret in secrets:
        key = base64.b64decode(secret.removeprefix("whsec_") + "==")
        if not key:  # a secret that is not set: everybody could sign with it
            continue
        wanted = b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
        if any(hmac.compare_digest(wanted, found.encode()) for found in signatures.split(" ")):
            return True
    return False
