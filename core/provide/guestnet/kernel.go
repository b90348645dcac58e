package guestnet

import (
	"cmp"
	"fmt"
	"net/netip"
)

// Tenant is a home whose guests are here, with the services that they reach by the addresses these have at home.
type Tenant struct {
	Guests   netip.Prefix // a /24, no other tenant's
	Guests6  netip.Prefix // a /64, no other tenant's; the zero value where guests have IPv4 alone
	Services Services     // of both families
	Shared   Services     // from the address that a shared pod of this cluster has for them to its own; IPv4
}

// Services lead from the address of a service at home to that of its twin here.
type Services map[netip.Addr]netip.Addr

// MaxServices is how many services of one home are mapped: what its tenants may have of them, several times. Each is an
// element of two maps in the kernel, some 100 bytes; an address of each family counts.
const MaxServices = 4096

// check says what is wrong with tenants that would take something from each other.
func check(tenants []Tenant) error {
	seen := map[netip.Prefix]bool{}
	for _, t := range tenants {
		switch err := cmp.Or(checkRange(t.Guests), checkRange6(t.Guests6)); {
		case err != nil:
			return err
		case seen[t.Guests]:
			return fmt.Errorf("two homes have the range %s for their guests", t.Guests)
		case t.Guests6.IsValid() && seen[t.Guests6]:
			return fmt.Errorf("two homes have the range %s for their guests", t.Guests6)
		case len(t.Services) > MaxServices:
			return fmt.Errorf("guests of %s have %d services, at most %d are taken", t.Guests, len(t.Services), MaxServices)
		}
		seen[t.Guests], seen[t.Guests6] = true, true
		at := Services{}
		for home, here := range t.Services {
			if !home.Is4() && !t.Guests6.IsValid() || home.Is4() != here.Is4() || !home.IsValid() || home.Zone()+here.Zone() != "" {
				return fmt.Errorf("guests of %s: service %s, here %s: want addresses of one family that guests have", t.Guests, home, here)
			}
			if other, taken := at[here]; taken {
				return fmt.Errorf("guests of %s: %s is the service %s and %s", t.Guests, here, other, home)
			}
			at[here] = home
		}
		for as, pod := range t.Shared {
			if _, taken := at[pod]; taken || !pod.Is4() || !t.Guests.Contains(as) {
				return fmt.Errorf("guests of %s: shared pod %s, for them %s: want an address of theirs, and a pod that is no service", t.Guests, pod, as)
			}
			at[pod] = as
		}
	}
	return nil
}
