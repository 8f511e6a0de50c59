"""Which names the contract allows."""

import pytest
from hushgrad.wire import names
from hushgrad.wire.errors import ContractError


@pytest.mark.parametrize("name", ["a", "0", "client-1", "a.b_c-d", "9lives", "a" * 63])
def test_name_is_returned_as_it_is(name):
    assert names.check_name(name) == name


@pytest.mark.parametrize("name", ["", "a" * 64, "A", "-a", ".a", "_a", "a b", "a/b", "é", "a\n", "a\0"])
def test_name_outside_the_alphabet_is_refused(name):
    with pytest.raises(ContractError, match="1 to 63 characters"):
        names.check_name(name)


def test_error_says_what_was_being_named():
    with pytest.raises(ContractError, match="federation"):
        names.check_name("?", what="federation")
