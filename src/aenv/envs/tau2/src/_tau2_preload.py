"""What is the same for all instances, loaded once before there is one: the code, and the data where it is there.

Instances are forks of the process that runs this, and share its memory until they change something.
"""

from __future__ import annotations

import os

import tau2_validating  # noqa: F401 - loaded for the instances
from tau2_airline_records import Certificate, FlightInfo, Passenger, Payment, Reservation, ReservationFlight
from tau2_binding import tool_functions
from tau2_domains import DOMAINS, data_folder, source, user_specs
from tau2_evaluation import hashes
from tau2_retail_records import Address, OrderPayment
from tau2_validation import adapter

from aenv import ToolError, get_registry

_PLACE = "/data"  # where an instance has its data
_RECORDS = (
    *(Certificate, FlightInfo, Passenger, Payment, Reservation, ReservationFlight),
    *(Address, OrderPayment),
)


def rehearse() -> None:
    """Register every domain's tools with a registry that is not served: what that loads stays loaded."""
    unserved = type(get_registry())
    for domain in DOMAINS.values():
        for solo in (False, True) if domain.has_solo else (False,):
            registry = unserved()
            for function in tool_functions(domain.name, solo=solo):
                registry.register(function)
        user_specs(domain.name)
    for record in _RECORDS:
        adapter(record)


def read_data() -> None:
    """Read and hash every domain's files, if there are any."""
    try:
        folder = data_folder({"TAU2_DATA_DIR": _PLACE})
    except ToolError:
        return  # an instance says so when it needs them
    for domain in DOMAINS:
        try:
            known = source(folder, domain)
        except ToolError:
            continue  # data of some domains only: an instance says so when it needs another
        hashes(known.open(solo=False))
        known.find(known.first["id"])


rehearse()
if os.path.isdir(_PLACE):
    read_data()
