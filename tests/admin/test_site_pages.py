"""Pages that protocols bring to the admin port."""

from gateway.admin.site import Request, page_of
from gateway.sdk.protocol import Answer


def test_a_page_gets_the_fields_of_the_query():
    """As text, the last of each name; bytes that are no UTF-8 do no harm."""
    page = page_of(lambda query: Answer(repr(sorted(query.items())).encode()))
    answer = page(Request("GET", "/x?uid=a&uid=b&%ff=%fe", []))
    assert isinstance(answer, Answer)
    assert answer.body.decode() == "[('uid', 'b'), ('\ufffd', '\ufffd')]"
