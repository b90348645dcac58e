package catalogue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/listing"
)

// Bounds of a catalogue and of a page of it.
const (
	MaxEntries   = 256
	MaxAddresses = 8        // of an entry
	mostBytes    = 40 << 10 // of a page's entries, unless one of them alone is larger: Client.Call takes 64 KiB
	base         = 1 << 10  // of an entry beside its document, at most
)

var (
	errNotItsOwn  = errors.New("its listing is another's")
	errNotCurrent = errors.New("its listing is of another time: do the clocks agree?")
)

// Entry is a listing, and where its provider may be: hints of whoever shows it.
type Entry struct {
	Listing   listing.Signed `json:"listing"`
	Addresses []string       `json:"addresses"` // ip:port
}

// Page is a part of a catalogue, in the order of the providers' IDs. More follows after the last of it.
type Page struct {
	Entries []Entry `json:"entries,omitempty"`
	More    bool    `json:"more,omitempty"`
}

// Validate bounds it.
func (p *Page) Validate() error {
	if len(p.Entries) > MaxEntries {
		return fmt.Errorf("%d entries, at most %d are taken", len(p.Entries), MaxEntries)
	}
	if p.More && len(p.Entries) == 0 {
		return errors.New("more follows, after nothing")
	}
	for _, e := range p.Entries {
		if n := len(e.Addresses); n == 0 || n > MaxAddresses {
			return fmt.Errorf("an entry has %d addresses, want 1 to %d", n, MaxAddresses)
		}
		for _, a := range e.Addresses {
			if at, err := netip.ParseAddrPort(a); err != nil || !public(at.Addr()) {
				return fmt.Errorf("address %.64q: want the address and port of a peer", a)
			}
		}
	}
	return nil
}

// page is as much as goes into one answer.
func page(all []Entry) (p Page) {
	size := 0
	for _, e := range all {
		size += len(e.Listing.Document)*4/3 + base
		if p.More = len(p.Entries) > 0 && size > mostBytes; p.More {
			break
		}
		p.Entries = append(p.Entries, e)
	}
	return p
}

// public reports whether an address may lead somebody else to a peer: not this machine itself, and nothing that is of one link alone.
func public(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast()
}

// reachable are those of a provider's addresses that may lead somebody else to it.
func reachable(addresses []string) (some []string) {
	for _, a := range addresses {
		if at, err := netip.ParseAddrPort(a); err == nil && public(at.Addr()) && len(some) < MaxAddresses {
			some = append(some, a)
		}
	}
	return some
}

// After is where a page begins that a query asks for.
func After(query url.Values) (after identity.ID, err error) {
	if text := query.Get("after"); text != "" {
		after, err = identity.ParseID(text)
	}
	return after, err
}

// Caller calls the peer API of a cluster, as peering.Client does.
type Caller interface {
	Call(ctx context.Context, method, path string, in, out any) error
}

// Found is what a catalogue shows of a provider, whose signature was checked.
type Found struct {
	listing.Document
	Addresses []string
}

// Read fetches a catalogue. What is not current is left out; what its provider did not sign makes it fail, for then the catalogue is not to be trusted.
func Read(ctx context.Context, to Caller, now time.Time) (all []Found, err error) {
	var after identity.ID
	seen := 0
	for more := true; more; {
		path := Path
		if !after.IsZero() {
			path += "?after=" + after.Compact()
		}
		var p Page
		if err := to.Call(ctx, http.MethodGet, path, nil, &p); err != nil {
			return nil, err
		}
		for _, e := range p.Entries {
			d, err := e.Listing.Verify()
			if err != nil {
				return nil, fmt.Errorf("the catalogue shows what its provider did not sign: %w", err)
			}
			if seen++; bytes.Compare(d.Provider.ID[:], after[:]) <= 0 || seen > MaxEntries {
				return nil, fmt.Errorf("the catalogue shows somebody twice, or more than %d", MaxEntries)
			}
			after = d.Provider.ID
			if d.Current(now) {
				all = append(all, Found{d, e.Addresses})
			}
		}
		more = p.More
	}
	return all, nil
}
