package record

import (
	"time"

	"kith.dev/core/contract"
	"kith.dev/core/identity"
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

// Afterwards is how long an answered or expired request stays, so that the peer can still fetch the answer.
const Afterwards = time.Minute

// NewDocument is the contract about an offer that this cluster, the consumer, signs.
func NewDocument(me *identity.Identity, myName string, provider contract.Party, terms contract.Terms, validFor time.Duration) contract.Document {
	if validFor <= 0 || validFor > Validity {
		validFor = Validity
	}
	now := time.Now().UTC().Truncate(time.Second)
	return contract.Document{
		Version: contract.Version, ID: contract.NewID(), Revision: 1,
		Consumer: contract.Party{ID: me.ID(), Name: myName, Key: me.Public()},
		Provider: provider,
		Terms:    terms,
		// The provider's clock may be a few minutes behind.
		NotBefore: now.Add(-ClockSkew), NotAfter: now.Add(validFor), Created: now,
	}
}

// Renewed is the next revision of a document: the same amounts, from now, for so long.
func Renewed(old contract.Document, now time.Time, runs time.Duration) contract.Document {
	doc := old
	now = now.UTC().Truncate(time.Second)
	doc.Revision++
	doc.Created, doc.NotBefore, doc.NotAfter = now, now.Add(-ClockSkew), now.Add(runs)
	return doc
}
