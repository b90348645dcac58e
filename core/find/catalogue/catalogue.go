package catalogue

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"kith.dev/core/agree/peering"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/listing"
)

// The routes of the peer API: what the caller may list of this cluster, and what this cluster lists.
const (
	ListingPath = "/kith/v2/listing"
	Path        = "/kith/v2/catalogue"
)

// How peers are asked when somebody looks.
const (
	askAgain = time.Minute     // no sooner
	askTime  = 2 * time.Second // for all together: whoever looks waits for it
	askMany  = 16              // at a time
)

// Provider is a peer that may have something listed here.
type Provider struct {
	ID        identity.ID
	Addresses []string // host:port of its peer API, as they are known here
	// Ask fetches its listing. A *peering.Problem means that it lists nothing here, another error that it does not answer.
	Ask func(context.Context) (listing.Signed, error)
}

// Catalogue asks providers what they list here. All methods may be called by many at once.
type Catalogue struct {
	providers func() []Provider
	now       func() time.Time
	log       *slog.Logger

	looking sync.Mutex // one asks, and the others have what it heard

	mu    sync.Mutex
	known map[identity.ID]heard
}

// heard is what a provider said, and when it was asked last.
type heard struct {
	signed listing.Signed
	until  time.Time // zero: nothing
	asked  time.Time
}

// New makes a catalogue of the providers that there are at each look.
func New(providers func() []Provider, now func() time.Time, log *slog.Logger) *Catalogue {
	return &Catalogue{providers: providers, now: now, log: log, known: map[identity.ID]heard{}}
}

// Page gives what is listed of those whose ID comes after one, in the order of IDs; not what is listed of the caller.
func (c *Catalogue) Page(ctx context.Context, caller, after identity.ID) Page {
	var all []Entry
	for _, p := range c.look(ctx) {
		if bytes.Compare(p.ID[:], after[:]) > 0 && p.ID != caller {
			all = append(all, p.Entry)
		}
	}
	return page(all)
}

type listed struct {
	ID identity.ID
	Entry
}

// look gives what is listed now. Who is not there any more is left out, and so is what ran out; who does not answer stays listed until then.
func (c *Catalogue) look(ctx context.Context) (all []listed) {
	c.looking.Lock()
	defer c.looking.Unlock()
	providers := c.providers()
	slices.SortFunc(providers, func(a, b Provider) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	providers = providers[:min(len(providers), MaxEntries)]
	c.ask(ctx, providers)
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := make(map[identity.ID]heard, len(providers))
	for _, p := range providers {
		is, known := c.known[p.ID]
		if !known {
			continue
		}
		keep[p.ID] = is
		if addresses := reachable(p.Addresses); now.Before(is.until) && len(addresses) > 0 {
			all = append(all, listed{p.ID, Entry{Listing: is.signed, Addresses: addresses}})
		}
	}
	c.known = keep
	return all
}

// ask asks those of whom it is time. A look that is given up does not end it: else who hangs up could have them asked again and again.
func (c *Catalogue) ask(looks context.Context, providers []Provider) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(looks), askTime)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(askMany)
	for _, p := range providers {
		c.mu.Lock()
		due := c.now().Sub(c.known[p.ID].asked) >= askAgain
		c.mu.Unlock()
		if !due {
			continue
		}
		group.Go(func() error {
			signed, err := p.Ask(ctx)
			var until time.Time
			if err == nil {
				until = c.checked(p.ID, signed)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			is := c.known[p.ID]
			is.asked = c.now()
			if _, answered := errors.AsType[*peering.Problem](err); err == nil || answered {
				is.signed, is.until = signed, until
			}
			c.known[p.ID] = is
			return nil
		})
	}
	_ = group.Wait() // nothing fails
}

// checked is until when a listing that came from a provider is good; zero if it is not what the provider may say.
func (c *Catalogue) checked(from identity.ID, signed listing.Signed) time.Time {
	d, err := signed.Verify()
	switch {
	case err != nil:
	case d.Provider.ID != from:
		err = errNotItsOwn
	case !d.Current(c.now()):
		err = errNotCurrent
	default:
		return d.NotAfter
	}
	c.log.Warn("what a peer lists here cannot be shown", "id", from.String(), "err", err)
	return time.Time{}
}
