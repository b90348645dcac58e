package doctor

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/find/discovery/dns"
)

// Names are those in the DNS by which clusters are looked for.
type Names struct {
	Of   []Named
	Find func(context.Context, dns.Name) ([]dns.Place, error)
}

// Named is a name and why it is looked up: "the peer bob", "discovery.dnsDomains".
type Named struct{ Name, By string }

// namesTime bounds all look-ups together; two servers that are silent take eight seconds.
const namesTime = 10 * time.Second

// Check is the group of the names' checks: each is looked up now, all at once.
func (n Names) Check(ctx context.Context, report func(api.Finding)) {
	ctx, cancel := context.WithTimeout(ctx, namesTime)
	defer cancel()
	found := make([]api.Finding, len(n.Of))
	var all sync.WaitGroup
	turn := make(chan struct{}, atOnce)
	for i, one := range n.Of {
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			found[i] = n.look(ctx, one)
		})
	}
	all.Wait()
	for _, f := range found {
		report(f)
	}
}

func (n Names) look(ctx context.Context, one Named) api.Finding {
	in := about{area: api.AreaNetwork}
	const name, servers = "dns-name", "is this laptop on the network, and are the name servers in /etc/resolv.conf the right ones?"
	what := one.Name + ", of " + one.By + ", leads to no cluster"
	parsed, err := dns.ParseName(one.Name)
	if err != nil {
		return in.warn(name, what, err.Error(), "write it as a name in the DNS, such as lab.example.org")
	}
	places, err := n.Find(ctx, parsed)
	var none *dns.NotFoundError
	switch {
	case err == nil && len(places) > 0:
		return in.ok(name, "%s leads to %s", one.Name, places[0].Addresses[0])
	case errors.As(err, &none) && none.Silent:
		return in.warn(name, one.Name+", of "+one.By+", could not be looked up", strings.Join(none.Asked, "; "), servers)
	case errors.As(err, &none):
		return in.warn(name, what, strings.Join(none.Asked, "; "), "is it spelled right, and has its zone the records that `kith dns-records` prints at its owner's?")
	case err != nil:
		return in.warn(name, one.Name+", of "+one.By+", could not be looked up", "there was no answer in time: "+err.Error(), servers)
	}
	return in.warn(name, what, "its records name none", "has its zone the records that `kith dns-records` prints at its owner's?")
}
