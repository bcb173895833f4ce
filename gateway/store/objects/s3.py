"""Object storage that speaks S3, through obstore (the extra `gateway[s3]`).

A request is made once, and ends within its time-out; who asks decides when to ask again
(`gateway.store.spool.uploads`).  Credentials are those of the configuration, or else
found and renewed as every S3 client does: environment, web identity (Kubernetes),
container, instance.  When they are refused they are looked for afresh.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gateway.config.bucket import BucketUrl
from gateway.store.objects.bucket import (
    AlreadyThere,
    Bucket,
    BucketError,
    Changed,
    NotThere,
    StoredObject,
)

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store
    from pydantic import SecretStr

    from gateway.config import model

_T = TypeVar("_T")

_CONNECT_SECONDS = 10.0
_PAGE = 1000


class Missing(BucketError):
    """The package for it is not installed."""


def bucket_of(spool: model.Spool, seconds: float | None = None) -> Bucket | None:
    """The bucket that a configuration names, if it names one; a request takes *seconds*
    at most, if that is less than configured.  Raises `Missing`.
    """
    if spool.bucket is None:
        return None
    settings = spool.s3
    if seconds is not None and seconds < settings.timeout:
        settings = settings.model_copy(update={"timeout": seconds})
    return S3(spool.bucket, settings)


class S3:
    """The objects below `s3://bucket/prefix`; see `Bucket`."""

    def __init__(self, where: BucketUrl, settings: model.S3) -> None:
        try:
            import obstore
        except ImportError as why:
            raise Missing(
                f"spool.directory: {where} needs the package obstore: "
                f"pip install 'gateway[s3]' ({why})"
            ) from None
        self._obstore: Any = obstore
        self._where = where
        self._settings = settings
        self._lock = threading.Lock()
        self._stores: dict[bool, S3Store] = {}
        """Stores by whether they remove many by one request; then so with one object, too."""

    @property
    def url(self) -> str:
        return str(self._where)

    def create(self, name: str, data: bytes) -> str:
        return self._put(name, data, "create")

    def replace(self, name: str, data: bytes) -> None:
        self._put(name, data, "overwrite")

    def swap(self, name: str, data: bytes, tag: str) -> str:
        try:
            return self._put(name, data, {"e_tag": tag})
        except (AlreadyThere, NotThere) as why:
            raise Changed(str(why)) from None

    def _put(self, name: str, data: bytes, mode: str | dict[str, str]) -> str:
        # In one request: only that can be refused where the name is taken.
        put = self._obstore.put
        done = self._ask(
            name, lambda at: put(at, name, data, mode=mode, use_multipart=False)
        )
        return done["e_tag"] or ""

    def read(self, name: str, first: int = 0) -> bytes:
        get = self._obstore.get
        options = {"range": {"offset": first}} if first else None
        return self._ask(name, lambda at: bytes(get(at, name, options=options).bytes()))

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        get = self._obstore.get

        def request(at: S3Store) -> tuple[bytes, str]:
            found = get(at, name)
            if not (tag := found.meta["e_tag"]):
                raise BucketError(f"{self.url}/{name}: this server tells no ETag")
            return bytes(found.bytes()), tag

        return self._ask(name, request)

    def list(self, begin: str, after: str = "") -> Iterator[StoredObject]:
        # A prefix is whole parts of a path for obstore; what is before is passed over.
        offset = max(after, begin[:-1])
        pages = self._ask(
            begin,
            lambda at: self._obstore.list(at, offset=offset, chunk_size=_PAGE),
        )
        while page := self._ask(begin, lambda _: next(pages, None)):
            for one in page:
                name = one["path"]
                if name.startswith(begin):
                    yield StoredObject(
                        name, one["size"], one["last_modified"].timestamp()
                    )
                elif name > begin:
                    return

    def copy(self, name: str, other: str) -> None:
        self._ask(name, lambda at: self._obstore.copy(at, name, other))

    def remove(self, name: str) -> None:
        with contextlib.suppress(NotThere):  # as S3 itself does not say
            self._ask(name, lambda at: self._obstore.delete(at, name), bulk=False)

    def remove_all(self, names: Sequence[str]) -> None:
        """Remove as `Bucket` does; a request for each thousand."""
        self._ask(names[0], lambda at: self._obstore.delete(at, list(names)))

    def _ask(
        self, name: str, request: Callable[[S3Store], _T], *, bulk: bool = True
    ) -> _T:
        from obstore import exceptions

        try:
            return request(self._connected(bulk=bulk))
        except exceptions.AlreadyExistsError as why:
            raise AlreadyThere(_reason(why)) from None
        except exceptions.PreconditionError as why:
            raise Changed(_reason(why)) from None
        except (
            exceptions.UnauthenticatedError,
            exceptions.PermissionDeniedError,
        ) as why:
            with self._lock:
                self._stores.clear()
            raise BucketError(_reason(why)) from None
        except FileNotFoundError as why:
            raise NotThere(_reason(why)) from None
        except exceptions.BaseError as why:
            raise BucketError(_reason(why)) from None

    def _connected(self, *, bulk: bool) -> S3Store:
        with self._lock:
            if bulk not in self._stores:
                self._stores[bulk] = self._connect(bulk=bulk)
            return self._stores[bulk]

    def _connect(self, *, bulk: bool) -> S3Store:
        from obstore.store import S3Store

        settings = self._settings
        chosen = {
            "endpoint": settings.endpoint,
            "region": settings.region,
            "access_key_id": _plain(settings.access_key_id),
            "secret_access_key": _plain(settings.secret_access_key),
            "virtual_hosted_style_request": settings.virtual_hosted or None,
            "disable_bulk_delete": not bulk or None,
        }
        endpoint = settings.endpoint or ""
        return S3Store(
            self._where.bucket,
            prefix=self._where.prefix or None,
            config=cast(
                "S3Config", {key: one for key, one in chosen.items() if one is not None}
            ),
            client_options={
                "timeout": timedelta(seconds=settings.timeout),
                "connect_timeout": timedelta(
                    seconds=min(settings.timeout, _CONNECT_SECONDS)
                ),
                "allow_http": endpoint.startswith("http://"),
            },
            retry_config={"max_retries": 0},
        )


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _reason(why: Exception) -> str:
    """The reason in one line: the rest is for debugging the library."""
    return " ".join(str(why).partition("\n\nDebug source")[0].split()).rstrip(": ")
