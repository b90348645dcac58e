package record

import (
	"time"

	"kith.dev/core/contract"
	"kith.dev/core/sharing"
)

// Validity of a contract when neither side says otherwise, and the longest that this cluster signs as a consumer.
const Validity = sharing.DefaultValidity

// ClockSkew between two laptops that is put up with.
const ClockSkew = 10 * time.Minute

// RunsFor is how long a contract runs from the moment it was signed. Its beginning is earlier, for clocks that are behind.
func RunsFor(doc contract.Document) time.Duration {
	return min(max(doc.NotAfter.Sub(doc.Created), sharing.MinValidity), Validity)
}

// Young contracts of a provider may not be in the consumer's books yet: it writes them down last.
const Young = 30 * time.Second

// RenewalPause: of the time that a contract runs, this part is between two revisions at the provider, at least.
const RenewalPause = 12
