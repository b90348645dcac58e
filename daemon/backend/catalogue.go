package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/find/catalogue"
	"kith.dev/core/find/directory"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/backend/location"
)

// catalogueTime is how long peers have to show their catalogues: those ask others first.
const catalogueTime = 5 * time.Second

// Catalogue reads the catalogue of one peer, or of all that keep one and are there. Whose key was not compared here is not asked.
func (b *Backend) Catalogue(ctx context.Context, options api.CatalogueOptions) ([]api.Listed, error) {
	if options.Peer != "" {
		at, err := b.Directory.Find(options.Peer)
		if err != nil {
			return nil, err
		}
		return b.listedAt(ctx, at)
	}
	var (
		mu    sync.Mutex
		all   []api.Listed
		group errgroup.Group
	)
	group.SetLimit(givesAll)
	for _, at := range b.Directory.All() {
		if !at.Contact.Reachable() || !sharing.Accepted(at.Peer) {
			continue
		}
		group.Go(func() error {
			some, err := b.listedAt(ctx, at)
			if err != nil { // most peers keep none
				b.Log.Debug("the catalogue of a peer is not read", "peer", at.Name, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, some...)
			return nil
		})
	}
	_ = group.Wait() // nothing fails
	slices.SortFunc(all, func(a, b api.Listed) int { return strings.Compare(a.At+"\x00"+a.ID, b.At+"\x00"+b.ID) })
	return all, nil
}

// listedAt is what a peer's catalogue shows.
func (b *Backend) listedAt(ctx context.Context, at directory.Known) ([]api.Listed, error) {
	if !sharing.Accepted(at.Peer) {
		return nil, &api.Error{Code: api.CodeConflict, Message: "the catalogue of " + at.Name, Reason: "its key was not accepted here", Do: "`kith peer " + at.Name + "` first: keys are compared with that"}
	}
	ctx, cancel := context.WithTimeout(ctx, catalogueTime)
	defer cancel()
	to, err := b.Directory.Client(at.Peer)
	if err != nil {
		return nil, internal(err)
	}
	found, err := catalogue.Read(ctx, to, time.Now())
	if problem, ok := errors.AsType[*peering.Problem](err); ok {
		return nil, noCatalogue(at.Name, problem)
	}
	if _, ok := errors.AsType[*peering.UnreachableError](err); ok {
		return nil, location.Unreachable(at.Name, err)
	}
	if err != nil {
		return nil, &api.Error{Code: api.CodeConflict, Message: "the catalogue of " + at.Name, Reason: err.Error()}
	}
	known := map[identity.ID]string{}
	for _, k := range b.Directory.All() {
		if k.Peer != nil {
			known[k.ID] = k.Name
		}
	}
	list := make([]api.Listed, 0, len(found))
	for _, f := range found {
		if f.Provider.ID == b.Me.ID() {
			continue
		}
		list = append(list, api.Listed{
			Name: f.Provider.Name, ID: f.Provider.ID.String(), ShortID: f.Provider.ID.Short(), Peer: known[f.Provider.ID], At: at.Name, AtID: at.ID.String(),
			Addresses: f.Addresses, Resources: f.Resources, Prices: f.Prices, Created: f.Created, NotAfter: f.NotAfter,
		})
	}
	return list, nil
}

// noCatalogue says why a peer shows none.
func noCatalogue(peer string, problem *peering.Problem) error {
	e := &api.Error{Code: api.CodeUnsupported, Message: "the catalogue of " + peer, Reason: problem.Message, Do: problem.Do}
	switch problem.Code {
	case peering.CodeNotFound:
		e.Reason, e.Do = peer+" keeps none", "its owner sets catalogue: true in the config.yaml of kithd there"
	case peering.CodeForbidden:
		e.Code = api.CodeDeclined
	case peering.CodeRateLimited, peering.CodeUnavailable:
		e.Code = api.CodeNotReady
	}
	return e
}

// introduced is where somebody is whom a peer's catalogue shows, by name or ID.
func (b *Backend) introduced(ctx context.Context, ref, by string) (location.Location, error) {
	all, err := b.Catalogue(ctx, api.CatalogueOptions{Peer: by})
	if err != nil {
		return location.Location{}, err
	}
	var found []api.Listed
	for _, l := range all {
		if id, err := identity.ParseID(ref); l.Name == ref || l.ShortID == ref || err == nil && l.ID == id.String() {
			found = append(found, l)
		}
	}
	switch len(found) {
	case 0:
		return location.Location{}, &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("nobody in the catalogue of %s is called %s", by, ref), Do: "`kith catalogue " + by + "` shows who is in it"}
	case 1:
	default:
		return location.Location{}, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("several in the catalogue of %s are called %s", by, ref), Do: "name one of them by its ID, which `kith catalogue " + by + "` shows"}
	}
	id, err := identity.ParseID(found[0].ID)
	if err != nil {
		return location.Location{}, internal(err)
	}
	return location.Location{Ref: ref, ID: id, Addresses: found[0].Addresses}, nil
}
