"""Formats of strings that llguidance takes only about, as expressions of Rust's crate `regex`."""

from __future__ import annotations

# Years 0001 to 9999, as Python's datetime has them; a leap year's last two digits, and first two.
_LEAP = "(?:0[48]|[2468][048]|[13579][26])"
_DATE = (
    r"(?:(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-"
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    r"02-(?:0[1-9]|1[0-9]|2[0-8]))"
    rf"|(?:[0-9]{{2}}{_LEAP}|{_LEAP}00)-02-29)"
)
# Leap seconds are left out: which minute has one depends on the offset.
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_BYTE}\.){{3}}{_BYTE}"
_GROUP = "[0-9a-fA-F]{1,4}"
_LAST = f"(?:{_GROUP}:{_GROUP}|{_IPV4})"  # 32 bits


def _ipv6() -> str:
    """Groups of 16 bits; `::` stands for one and more of zeros, once (RFC 3986, IPv6address)."""
    ways = [f"(?:{_GROUP}:){{6}}{_LAST}"]
    for n_behind in range(5, -1, -1):
        n_before = 5 - n_behind
        before = f"(?:(?:{_GROUP}:){{0,{n_before - 1}}}{_GROUP})?" if n_before else ""
        ways.append(f"{before}::(?:{_GROUP}:){{{n_behind}}}{_LAST}")
    ways.append(f"(?:(?:{_GROUP}:){{0,5}}{_GROUP})?::{_GROUP}")
    ways.append(f"(?:(?:{_GROUP}:){{0,6}}{_GROUP})?::")
    return "|".join(f"(?:{way})" for way in ways)


FORMATS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}[Tt]{_TIME}$",
    "ipv4": f"^{_IPV4}$",
    "ipv6": f"^(?:{_ipv6()})$",
}
# The other names of JSON Schema: llguidance takes or refuses them. Any further name is an annotation, which
# says nothing about a value.
OTHERS = {
    "duration", "email", "idn-email", "hostname", "idn-hostname", "uri", "uri-reference", "iri",
    "iri-reference", "uri-template", "uuid", "regex", "json-pointer", "relative-json-pointer",
}  # fmt: skip
