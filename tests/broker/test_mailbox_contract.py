"""The contract of mailboxes over every implementation there is (see ``conftest.FACTORIES``)."""

from mailbox_contract import *  # noqa: F403 -- the suite is the names of that module
