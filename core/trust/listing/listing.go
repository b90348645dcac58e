package listing

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

const (
	// Version is what the documents call themselves.
	Version = "kith.dev/listing/v1"
	// MaxDocument bounds a document, in bytes: 32 resources of long names, twice.
	MaxDocument = 16 << 10
	// Longest is for how long a listing may be good. Amounts change with each pod of the provider; what is good for longer would be a promise.
	Longest = time.Hour
	// skew is how far the clocks of two laptops may be apart.
	skew = 10 * time.Minute
)

// Document is what would be given to somebody new. It binds nobody: what is granted stands in a contract. Times have whole seconds, in UTC.
type Document struct {
	Version  string         `json:"version"`
	Provider contract.Party `json:"provider"`
	// Resources by Kubernetes resource name, as Kubernetes quantities; never empty.
	Resources map[string]string `json:"resources"`
	// Prices by resource name, as in contracts; what is not named is free.
	Prices   map[string]string `json:"prices,omitempty"`
	Created  time.Time         `json:"created"`
	NotAfter time.Time         `json:"notAfter"`
}

// Validate says what in the document cannot be meant. That it is over is no error.
func (d Document) Validate() error {
	if d.Version != Version {
		return fmt.Errorf("version %.64q, this Kith reads %s", d.Version, Version)
	}
	if err := d.Provider.Validate(); err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	if err := contract.CheckResources(d.Resources); err != nil {
		return err
	}
	if len(d.Resources) == 0 {
		return errors.New("resources: there are none")
	}
	if err := contract.CheckPrices(d.Prices); err != nil {
		return err
	}
	switch {
	case d.Created.Year() < 2000 || d.NotAfter.Year() > 9999:
		return errors.New("its years cannot be meant")
	case !d.Created.Before(d.NotAfter) || d.NotAfter.Sub(d.Created) > Longest:
		return fmt.Errorf("it is good from %s to %s, at most %s are allowed", d.Created.Format(time.RFC3339), d.NotAfter.Format(time.RFC3339), Longest)
	}
	return nil
}

// Current reports whether the listing is good now, by the clock of whoever reads it.
func (d Document) Current(now time.Time) bool {
	return !now.Before(d.Created.Add(-skew)) && now.Before(d.NotAfter)
}

// Signed is a document, signed by its provider.
type Signed canonical.Signed

// Sign writes a listing down as its provider.
func Sign(d Document, provider *identity.Identity) (Signed, error) {
	d.Created, d.NotAfter = d.Created.UTC().Truncate(time.Second), d.NotAfter.UTC().Truncate(time.Second)
	if d.Provider.ID != provider.ID() {
		return Signed{}, errors.New("listing: its provider is not this cluster")
	}
	doc, err := canonical.Write(d, MaxDocument)
	if err != nil {
		return Signed{}, fmt.Errorf("listing: %w", err)
	}
	return Signed(canonical.Sign(doc, Version, provider)), nil
}

var shape = (&wire.Types{Fold: true}).Of(reflect.TypeFor[Document]())

// Verify checks that the provider which the document names signed it.
func (s Signed) Verify() (Document, error) {
	d, err := canonical.Read[Document](s.Document, shape, MaxDocument)
	if err == nil {
		err = canonical.Signed(s).Check(Version, d.Provider.Key, d.Provider.ID)
	}
	if err != nil {
		return Document{}, fmt.Errorf("listing: %w", err)
	}
	return d, nil
}
