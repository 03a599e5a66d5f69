"""The contract as a test suite that runs against any implementation of it (CONF-1).

``pytest --pyargs conformance`` with one of its options says against which; see docs/conformance.md. Who writes a
factory for ``--subject`` needs the values here and nothing else.
"""

from __future__ import annotations

from ._subject import AgentDoor, OperatorMail, Subject, SubjectFactory, Turn

__all__ = ["AgentDoor", "OperatorMail", "Subject", "SubjectFactory", "Turn"]
