"""The suite against agents with one fault each (CONF-1): the tests of the id it breaks must say so."""

import door_mutants  # noqa: F401 - registers its mutants
import mail_mutants  # noqa: F401 - registers its mutants
import pytest
from planting import MUTANTS

from conformance._manifest import MANIFEST

pytest_plugins = ["pytester"]

RUN = ("-p", "no:cacheprovider", "-x", "-q", "--pyargs", "conformance")

SHOWN_BY = {"the_port_moves": "ConnectError"}
"""How a fault shows where no assertion of the suite is reached."""


def test_every_id_that_has_tests_has_a_fault_planted():
    """CONF-1: a test that nothing can fail proves nothing."""
    assert {id_ for mutant in MUTANTS for id_ in mutant.ids} == {
        id_ for id_, entry in MANIFEST.items() if entry.not_yet is None
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "id_"),
    [pytest.param(mutant, id_, id=f"{mutant.name}-{id_}") for mutant in MUTANTS for id_ in mutant.ids],
)
def test_a_planted_fault_fails_the_tests_of_its_id(pytester, mutant, id_):
    """CONF-1: and it fails them by what they assert, not by a fault in the planting."""
    run = pytester.inline_run(*RUN, "--subject", mutant.subject, "--contract", id_, "-k", "not 2025-11-25")
    failures = run.getfailures()
    assert failures, f"{mutant.name} was not noticed"
    assert SHOWN_BY.get(mutant.name, "AssertionError") in str(failures[0].longrepr), failures[0].longrepr
