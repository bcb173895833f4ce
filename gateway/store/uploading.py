"""The uploads of a node to a bucket where other gateways may have its name: nothing is
put there before it is known that the name is ours, and what is there.
"""

from __future__ import annotations

from attrs import define

from gateway.store.bucket import Bucket
from gateway.store.claim import Claim
from gateway.store.in_bucket import files_behind
from gateway.store.spool.uploads import Uploads


@define(eq=False, slots=False)
class Uploading:
    """The uploads, and whether what the bucket has was seen."""

    _uploads: Uploads
    _bucket: Bucket
    _claim: Claim | None
    _node: str
    _known_lsn: int
    """The last lsn of which this start knew a file."""
    _unseen: bool
    """The bucket may have files of this node that this start has not seen."""

    @classmethod
    def begin(
        cls,
        uploads: Uploads,
        bucket: Bucket,
        claim: Claim | None,
        node: str,
        known_lsn: int,
        unclaimed: str | None,
        unlisted: str | None,
    ) -> Uploading:
        """Take on what an earlier run left.  *unclaimed* is why the name was not ours when
        the bucket was listed behind *known_lsn*, if it was not, *unlisted* why it was not
        listed.  Raises OSError.
        """
        uploads.find()
        why = None if claim is None else unlisted
        if unclaimed is not None:  # whoever had it may have put more there since
            why = (
                f"Whether another gateway has node {node} of {bucket.url} is "
                f"not known: {unclaimed}"
            )
        if why is not None:
            uploads.pause(why)
        return cls(uploads, bucket, claim, node, known_lsn, why is not None)

    def start(self) -> None:
        """Go on as soon as the name is known to be ours, and no longer than it is."""
        self._uploads.find()  # what a renamed node left, too
        if self._claim is not None:
            self._claim.watch(self._uploads.forbid, self._claimed)

    def _claimed(self) -> None:
        """The name is ours, and nothing of this life is in the bucket if that was not known.

        In the claim's thread.  Raises `BucketError`.
        """
        if not self._unseen:
            return
        node, known = self._node, self._known_lsn
        if others := files_behind(self._bucket, node, known):
            self._uploads.forbid(
                f"{self._bucket.url} has {others[-1]}, which another gateway of node {node} "
                f"has put there: this one knew of no file behind lsn {known}, and gives the "
                "same lsns.  Start it again while the bucket answers: it goes on behind that"
            )
        else:
            self._unseen = False
            self._uploads.resume()

    def leave(self, *, waits: bool) -> None:
        """The journal has ended, and something *waits* to be published, or not.  Blocks.

        As long as something waits the name stays ours; the next start here has it at once,
        and one elsewhere, which would give the same lsns, does not have it unasked.
        """
        if self._claim is None:
            return
        if waits or self._uploads.why is not None:
            self._claim.keep()
        else:
            self._claim.release()
